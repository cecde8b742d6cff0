package runner

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// short refuses an error that would write lines of its own into a log, or fill it.
func short(t *testing.T, err error) {
	t.Helper()
	if text := err.Error(); len(text) > 4000 || strings.ContainsAny(text, "\n\r") {
		t.Errorf("an error of %d bytes: %.300q", len(text), text)
	}
}

// FuzzParseEvent: a line is an event that comes back the same when it is written
// and read again, or an error.
func FuzzParseEvent(f *testing.F) {
	for _, e := range everyEvent() {
		var b bytes.Buffer
		if err := WriteEvent(&b, e); err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := ParseEvent(line)
		if err != nil {
			short(t, err)
			return
		}
		// The first time may clean a text up, as JSON has it; the second does not.
		for range 2 {
			var b bytes.Buffer
			if err := WriteEvent(&b, e); err != nil {
				t.Fatalf("an event that was read cannot be written: %v", err)
			}
			again, err := ParseEvent(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
			if err != nil {
				t.Fatalf("an event that was written cannot be read: %v\n%s", err, b.Bytes())
			}
			if !reflect.DeepEqual(again, e) {
				t.Fatalf("%+v comes back as %+v", e, again)
			}
		}
	})
}

// drained reads a pipe to its end or its first violation.
func drained[T any](next func() (T, error)) (all []T, err error) {
	for {
		v, err := next()
		if err != nil {
			return all, err
		}
		all = append(all, v)
	}
}

// FuzzPipe: a pipe says the same however its bytes come, in either direction, and
// ends with io.EOF or with why it is of no more use.
func FuzzPipe(f *testing.F) {
	var events, requests bytes.Buffer
	for _, e := range everyEvent() {
		if err := WriteEvent(&events, e); err != nil {
			f.Fatal(err)
		}
	}
	for _, r := range []Request{{Op: OpRun, ID: "a", SeqLen: 1, Batch: 1, Env: map[string]string{"A": "b"}, QuotaKind: "allocator", QuotaBytes: 2}, {Op: OpKill, ID: "a"}, {Op: OpExit}} {
		if err := WriteRequest(&requests, r); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(events.Bytes()[:200])
	f.Add(requests.Bytes())
	f.Add([]byte("\n{}\n{\"op\":\"exit\"}"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		for _, pieces := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader} {
			e, err := drained(NewEvents(bytes.NewReader(wire)).Next)
			other, errOther := drained(NewEvents(pieces(bytes.NewReader(wire))).Next)
			if !reflect.DeepEqual(e, other) || err.Error() != errOther.Error() {
				t.Errorf("%d events and %v, in pieces %d and %v", len(e), err, len(other), errOther)
			}
		}
		all, err := drained(NewRequests(bytes.NewReader(wire)).Next)
		if other, errOther := drained(NewRequests(iotest.OneByteReader(bytes.NewReader(wire))).Next); !reflect.DeepEqual(all, other) || err.Error() != errOther.Error() {
			t.Errorf("%d requests and %v, byte by byte %d and %v", len(all), err, len(other), errOther)
		}
		if !errors.Is(err, io.EOF) {
			short(t, err)
		}
		for _, r := range all {
			var b bytes.Buffer
			if err := WriteRequest(&b, r); err != nil {
				t.Fatal(err)
			}
			again, err := NewRequests(&b).Next()
			if err != nil || again.Op != r.Op || again.SeqLen != r.SeqLen || again.QuotaBytes != r.QuotaBytes || len(again.Env) != len(r.Env) {
				t.Errorf("%+v comes back as %+v, %v", r, again, err)
			}
		}
	})
}
