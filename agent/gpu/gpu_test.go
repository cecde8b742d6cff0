package gpu

import (
	"errors"
	"strings"
	"testing"
	"unsafe"
)

// TestWithoutDriver: on a machine without a driver Open is an error that says
// what to do. On a GPU node the same call must give a whole identity.
func TestOpen(t *testing.T) {
	card, err := Open("")
	if errors.Is(err, ErrNoDriver) {
		if !strings.Contains(err.Error(), "simulated agent") {
			t.Errorf("the error does not say what to do: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer card.Close()
	id, err := card.Identify()
	if err != nil {
		t.Fatal(err)
	}
	if id.GPU == "" || id.Driver == "" || !strings.HasPrefix(id.UUID, "GPU-") || id.Total <= 0 {
		t.Errorf("identity %+v", id)
	}
	sample, err := card.Sample()
	if err != nil {
		t.Fatal(err)
	}
	if sample.Total != id.Total || sample.Used+sample.Free > sample.Total {
		t.Errorf("sample %+v", sample)
	}
	if _, err := Open("GPU-00000000-0000-0000-0000-000000000000"); err == nil {
		t.Error("a card that does not exist was opened")
	}
	if _, err := Open("9999"); err == nil {
		t.Error("card 9999 was opened")
	}
}

// TestLayout holds the structures to the sizes of NVML's header.
func TestLayout(t *testing.T) {
	if n := unsafe.Sizeof(memoryInfo{}); n != 24 {
		t.Errorf("nvmlMemory_t is 24 bytes, not %d", n)
	}
	if n := unsafe.Sizeof(processInfo{}); n != 24 {
		t.Errorf("nvmlProcessInfo_t is 24 bytes, not %d", n)
	}
}

// TestEveryStatusSaysSomething: an answer that is not a number becomes a
// sentence, never 0.
func TestEveryStatusSaysSomething(t *testing.T) {
	for s := status(1); s < 40; s++ {
		if s.explain() == "" {
			t.Errorf("status %d has no explanation", s)
		}
	}
}

// bytesAt and processesAt are the room that a caller of NVML has made.
func bytesAt(at *byte, n uint32) []byte                   { return unsafe.Slice(at, n) }
func processesAt(at *processInfo, n uint32) []processInfo { return unsafe.Slice(at, n) }
