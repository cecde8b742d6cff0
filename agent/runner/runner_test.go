package runner

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

func ptr[T any](v T) *T { return &v }

func id(s string) RunID { return RunID{ID: s} }

func everyEvent() []Event {
	return []Event{
		&Hello{Protocol: 1, PID: 7, Python: "3.12", Torch: "2.11.0+cu130", CUDA: "13.0", QuotaKinds: []string{"allocator"},
			Sim: Sim{Simulated: true, GPU: "NVIDIA H200", Driver: "580.159.04", UUID: "SIM-1", TotalBytes: 150109880320}},
		&Started{RunID: id("t1"), PID: 9},
		&Phase{RunID: id("t1"), Phase: "load", Meters: Meters{Weights: ptr(int64(8435267018)), NumOOMs: ptr(int64(0))}},
		&Trace{RunID: id("t1"), Actions: "sarfo", Addr: []uint64{1 << 63, 1, 2, 3, 4}, Size: []int64{1, 2, 3, 4, 5},
			Stream: []int64{0, 0, 0, 0, 0}, TimeUS: []int64{1, 2, 3, 4, 5}},
		&Done{RunID: id("t1"), OutputFinite: ptr(true), Settings: map[string]string{"a": "b"}, Dtypes: map[string]string{"esm": "bfloat16"}, Seconds: 1.5},
		&Failed{RunID: id("t1"), Phase: "forward", Exception: "OutOfMemoryError", Message: "CUDA out of memory.\x00", BadCell: true},
		&Exited{RunID: id("t1"), Code: ptr(0)},
		&Exited{RunID: id("t1"), Signal: "SIGKILL"},
		&Fault{Message: "no CUDA device: look at nvidia-smi"},
		&Fault{ID: "t1", Message: "broken"},
	}
}

func TestEventsSurviveTheWire(t *testing.T) {
	var wire bytes.Buffer
	for _, e := range everyEvent() {
		if err := WriteEvent(&wire, e); err != nil {
			t.Fatal(err)
		}
	}
	in := NewEvents(&wire)
	for _, want := range everyEvent() {
		got, err := in.Next()
		if err != nil {
			t.Fatal(err)
		}
		want.head().Ev = want.kind()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %#v\nwant %#v", got, want)
		}
	}
	if _, err := in.Next(); err != io.EOF {
		t.Fatalf("after the last event: %v, want io.EOF", err)
	}
}

func TestViolationsAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ line, want string }{
		"garbage":          {"\x7fELF\n", "invalid character"},
		"unknown ev":       {`{"ev":"surprise"}` + "\n", `unknown ev "surprise"`},
		"no ev":            {`{"id":"a"}` + "\n", "unknown ev"},
		"unknown field":    {`{"ev":"started","id":"a","pid":1,"x":2}` + "\n", "unknown field"},
		"no id":            {`{"ev":"started","pid":1}` + "\n", "no id"},
		"two values":       {`{"ev":"started","id":"a","pid":1} {}` + "\n", "after top-level value"},
		"ragged trace":     {`{"ev":"trace","id":"a","actions":"aa","addr":[1],"size":[1],"stream":[0],"time_us":[0]}` + "\n", "different lengths"},
		"unknown action":   {`{"ev":"trace","id":"a","actions":"?","addr":[1],"size":[1],"stream":[0],"time_us":[0]}` + "\n", "unknown action"},
		"code and signal":  {`{"ev":"exited","id":"a","code":1,"signal":"SIGKILL"}` + "\n", "exactly one"},
		"neither":          {`{"ev":"exited","id":"a"}` + "\n", "exactly one"},
		"empty fault":      {`{"ev":"fault","message":""}` + "\n", "no message"},
		"cut short":        {`{"ev":"started","id":"a","pid":1}`, "unexpected EOF"},
		"negative address": {`{"ev":"trace","id":"a","actions":"a","addr":[-1],"size":[1],"stream":[0],"time_us":[0]}` + "\n", "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewEvents(strings.NewReader(c.line)).Next()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestAnEndlessLineIsCutOff(t *testing.T) {
	endless := io.MultiReader(strings.NewReader(`{"ev":"fault","message":"`), zeros{})
	if _, err := NewEvents(endless).Next(); !errors.Is(err, ErrLineTooLong) {
		t.Fatalf("got %v, want ErrLineTooLong", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

func TestRequestsSurviveTheWire(t *testing.T) {
	want := []Request{
		{Op: OpRun, ID: "t1", Workload: Workload{Name: "esmfold", Params: map[string]string{"model": "esmfold_v1"}}, SeqLen: 384,
			Batch: 1, ChunkSize: 64, Env: map[string]string{"A": ""}, QuotaKind: "allocator", QuotaBytes: 11549016064, Record: true},
		{Op: OpKill, ID: "t1"},
		{Op: OpExit},
	}
	var wire bytes.Buffer
	for _, r := range want {
		if err := WriteRequest(&wire, r); err != nil {
			t.Fatal(err)
		}
	}
	in := NewRequests(&wire)
	for i := range want {
		got, err := in.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want[i]) {
			t.Errorf("got %+v, want %+v", got, want[i])
		}
	}
	for _, bad := range []string{"{\"op\":\"dance\"}\n", "{\"op\":\"run\"}\n", "nonsense\n"} {
		if _, err := NewRequests(strings.NewReader(bad)).Next(); err == nil {
			t.Errorf("request %q was accepted", bad)
		}
	}
}

func TestScriptIsEmbedded(t *testing.T) {
	if !strings.Contains(Script(), "PROTOCOL = 1\n") {
		t.Fatal("the embedded runner does not speak this package's protocol")
	}
}
