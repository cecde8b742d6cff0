package gpu

import (
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

// answers is an NVML that says what a test wants.
type answers struct {
	name, uuid, driver string
	text, mem, list    status // of the three texts, the memory, the processes
	memory             memoryInfo
	processes          []processInfo
}

func (a answers) card() *Card {
	say := func(to *byte, room uint32, text string) status {
		if a.text == statusOK {
			out := bytesAt(to, room)
			out[copy(out[:room-1], text)] = 0
		}
		return a.text
	}
	return &Card{lib: &nvml{
		name:   func(_ uintptr, to *byte, n uint32) status { return say(to, n, a.name) },
		uuid:   func(_ uintptr, to *byte, n uint32) status { return say(to, n, a.uuid) },
		driver: func(to *byte, n uint32) status { return say(to, n, a.driver) },
		memory: func(_ uintptr, to *memoryInfo) status { *to = a.memory; return a.mem },
		computeProc: func(_ uintptr, n *uint32, to *processInfo) status {
			room := *n
			*n = uint32(len(a.processes))
			if int(room) < len(a.processes) {
				return statusInsufficientSize
			}
			copy(processesAt(to, room), a.processes)
			return a.list
		},
	}}
}

func healthy() answers {
	return answers{name: "NVIDIA H200", uuid: "GPU-1", driver: "580.159.04", memory: memoryInfo{total: 140 << 30, free: 100 << 30, used: 40 << 30}}
}

// TestAnswersThatAreNoValues: what is no name and no number is an error with a
// sentence, and never an empty name, 0 bytes or a negative size.
func TestAnswersThatAreNoValues(t *testing.T) {
	if id, err := healthy().card().Identify(); err != nil || id.GPU != "NVIDIA H200" || id.UUID != "GPU-1" || id.Driver != "580.159.04" || id.Total != 140*proto.GiB {
		t.Fatalf("a healthy card: %+v, %v", id, err)
	}
	cases := map[string]struct {
		change func(*answers)
		want   string
	}{
		"lost":             {func(a *answers) { a.text = statusGPULost }, "fell off the bus"},
		"driver mismatch":  {func(a *answers) { a.text = statusDriverMismatch }, "reboot this machine"},
		"requires reset":   {func(a *answers) { a.mem = 16 }, "requires a reset"},
		"shared memory":    {func(a *answers) { a.mem = statusNotSupported }, "memory: not supported on this card"},
		"no permission":    {func(a *answers) { a.mem = statusNoPermission }, "no permission"},
		"status 999":       {func(a *answers) { a.mem = 999 }, "NVML status 999"},
		"no memory":        {func(a *answers) { a.memory = memoryInfo{} }, "gives no memory"},
		"unknown memory":   {func(a *answers) { a.memory.total = usedUnknown }, "gives no memory"},
		"free is unknown":  {func(a *answers) { a.memory.free = usedUnknown }, "gives no memory"},
		"no such thing":    {func(a *answers) { a.uuid = "" }, "no UUID"},
		"a driver is none": {func(a *answers) { a.driver = "N/A" }, `no driver version for this card ("N/A")`},
	}
	for _, word := range []string{"[N/A]", "[Not Supported]", "Not Supported", "[Unknown Error]", "Unknown Error", "[Insufficient Permissions]",
		"[GPU is lost]", "[GPU requires reset]", "ERR!"} {
		cases["name "+word] = struct {
			change func(*answers)
			want   string
		}{func(a *answers) { a.name = word }, "gives no name for this card"}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := healthy()
			tc.change(&a)
			if id, err := a.card().Identify(); err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%+v, %v, want %q", id, err, tc.want)
			}
			if a.text != statusOK || a.name != "NVIDIA H200" || a.uuid == "" || a.driver == "N/A" {
				return // a sample has no texts
			}
			if s, err := a.card().Sample(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("sample %+v, %v", s, err)
			}
		})
	}
}

// TestProcessesWithoutASize: a process whose memory the driver does not tell has
// no size, however many there are; a list that cannot be had is an error.
func TestProcessesWithoutASize(t *testing.T) {
	a := healthy()
	for pid := range uint32(200) { // more than there is room for at first
		a.processes = append(a.processes, processInfo{pid: pid + 1, used: uint64(pid) << 20})
	}
	a.processes[79].used = usedUnknown
	s, err := a.card().Sample()
	if err != nil || len(s.Processes) != 200 {
		t.Fatalf("%d processes, %v", len(s.Processes), err)
	}
	for i, p := range s.Processes {
		if i == 79 {
			if p.Used != nil {
				t.Errorf("process %d has %s", p.PID, *p.Used)
			}
		} else if p.Used == nil || *p.Used != proto.Bytes(i)*proto.MiB {
			t.Errorf("process %d has %v", p.PID, p.Used)
		}
	}
	a.list = statusNotSupported
	if s, err := a.card().Sample(); err == nil || !strings.Contains(err.Error(), "list the card's processes: not supported") {
		t.Errorf("%+v, %v", s, err)
	}
}
