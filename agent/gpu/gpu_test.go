package gpu

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// TestWithoutDriver: on a machine without a driver Open is an error that says
// what to do. On a GPU node the same call must give a whole identity.
func TestOpen(t *testing.T) {
	card, id, err := Open("")
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
	if again, err := card.Identify(); err != nil || again != id {
		t.Errorf("asked again it is %+v, %v", again, err)
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
	if _, _, err := Open("GPU-00000000-0000-0000-0000-000000000000"); err == nil {
		t.Error("a card that does not exist was opened")
	}
	if _, _, err := Open("9999"); err == nil {
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

// TestDriverThatHangs: wherever a driver hangs, the start of an agent ends with a
// sentence, and its end does not wait for it.
func TestDriverThatHangs(t *testing.T) {
	for name, hang := range map[string]func(n *nvml, hung func()){
		"as it is loaded":   nil,
		"as it starts":      func(n *nvml, hung func()) { n.initV2 = func() status { hung(); return statusOK } },
		"as it is asked":    func(n *nvml, hung func()) { n.memory = func(uintptr, *memoryInfo) status { hung(); return statusOK } },
		"as it is let go":   func(n *nvml, hung func()) { n.shutdown = func() status { hung(); return statusOK } },
		"never, it is well": func(*nvml, func()) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				defer close(release)
				hung := func() { <-release }
				n := healthy().card().lib
				n.initV2, n.shutdown = func() status { return statusOK }, func() status { return statusOK }
				n.count = func(to *uint32) status { *to = 1; return statusOK }
				n.byIndex = func(uint32, *uintptr) status { return statusOK }
				load := func() (*nvml, error) { hung(); return n, nil }
				if hang != nil {
					load = func() (*nvml, error) { return n, nil }
					hang(n, hung)
				}
				began := time.Now() // the bubble's
				card, id, err := open(load, "")
				if opens := name == "as it is let go" || name == "never, it is well"; opens {
					if err != nil || id.UUID != "GPU-1" || time.Since(began) != 0 {
						t.Fatalf("%+v, %v after %v", id, err, time.Since(began))
					}
					card.Close()
					if took := time.Since(began); took > closeWithin || took == closeWithin != (name == "as it is let go") {
						t.Errorf("closed after %v", took)
					}
					return
				}
				if err == nil || !strings.Contains(err.Error(), "has not answered for 1m0s: look at dmesg") || time.Since(began) != openWithin {
					t.Errorf("%v after %v", err, time.Since(began))
				}
			})
		})
	}
}
