package gpu

import (
	"errors"
	"fmt"

	"github.com/ebitengine/purego"
)

// libraries are where the driver puts NVML, tried in order by the loader.
var libraries = [...]string{"libnvidia-ml.so.1", "libnvidia-ml.so"}

// ErrNoDriver is returned when NVML cannot be loaded: no NVIDIA driver here.
var ErrNoDriver = errors.New("no NVIDIA driver found (libnvidia-ml.so.1): install the driver, or run this agent on a GPU node; for trying out without a GPU use a simulated agent")

// status is an nvmlReturn_t.
type status int32

const (
	statusOK               status = 0
	statusNotSupported     status = 3
	statusNoPermission     status = 4
	statusInsufficientSize status = 7
	statusGPULost          status = 15
	statusDriverMismatch   status = 18
)

// explain says what an NVML status means and what to do about it.
func (s status) explain() string {
	switch s {
	case statusNotSupported:
		return "not supported on this card"
	case statusNoPermission:
		return "no permission: run the agent as a user that may read the card"
	case statusGPULost:
		return "the card is lost (it fell off the bus): reset or replace it"
	case statusDriverMismatch:
		return "the driver and its library are of different versions (an upgrade without a restart): reboot this machine"
	case 9:
		return "the driver is not loaded: check nvidia-smi"
	case 16:
		return "the card requires a reset"
	}
	return fmt.Sprintf("NVML status %d", int32(s))
}

// memoryInfo is nvmlMemory_t.
type memoryInfo struct{ total, free, used uint64 }

// processInfo is nvmlProcessInfo_t (v2 and v3 of the call).
type processInfo struct {
	pid           uint32
	_             uint32
	used          uint64
	instance      uint32
	computeInstID uint32
}

// usedUnknown is what NVML writes where it cannot tell a process's memory.
const usedUnknown = ^uint64(0)

// nvml holds the few entry points that are used.
type nvml struct {
	initV2      func() status
	shutdown    func() status
	count       func(*uint32) status
	byIndex     func(uint32, *uintptr) status
	byUUID      func(string, *uintptr) status
	name        func(uintptr, *byte, uint32) status
	uuid        func(uintptr, *byte, uint32) status
	driver      func(*byte, uint32) status
	memory      func(uintptr, *memoryInfo) status
	computeProc func(uintptr, *uint32, *processInfo) status
}

// load opens the library and binds every entry point; one that is missing is an
// error that names it (an older driver), since calling it would end the process.
func load() (*nvml, error) {
	var handle uintptr
	var err error
	for _, name := range libraries {
		if handle, err = purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL); err == nil {
			break
		}
	}
	if err != nil {
		return nil, ErrNoDriver
	}
	n := &nvml{}
	for _, b := range []struct {
		symbol string
		to     any
	}{
		{"nvmlInit_v2", &n.initV2}, {"nvmlShutdown", &n.shutdown},
		{"nvmlDeviceGetCount_v2", &n.count}, {"nvmlDeviceGetHandleByIndex_v2", &n.byIndex},
		{"nvmlDeviceGetHandleByUUID", &n.byUUID}, {"nvmlDeviceGetName", &n.name}, {"nvmlDeviceGetUUID", &n.uuid},
		{"nvmlSystemGetDriverVersion", &n.driver}, {"nvmlDeviceGetMemoryInfo", &n.memory},
		{"nvmlDeviceGetComputeRunningProcesses_v3", &n.computeProc},
	} {
		at, err := purego.Dlsym(handle, b.symbol)
		if err != nil {
			return nil, fmt.Errorf("this driver's NVML has no %s: update the driver (version 510 or later)", b.symbol)
		}
		purego.RegisterFunc(b.to, at)
	}
	return n, nil
}
