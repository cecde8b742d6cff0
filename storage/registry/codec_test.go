package registry

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

func TestDecodeCommandIsStrict(t *testing.T) {
	for name, test := range map[string]struct{ text, says string }{
		"unknown command":  {`{"v":1,"drop_sweep":{}}`, "unknown field"},
		"unknown field":    {`{"v":1,"cancel_sweep":{"id":"a","force":true}}`, "unknown field"},
		"deep unknown":     {`{"v":1,"add_sweep":{"id":"a","cells":[{"gpus":1}]}}`, "unknown field"},
		"two commands":     {`{"v":1,"cancel_sweep":{"id":"a"},"set_member":{"member":{}}}`, "exactly one"},
		"none":             {`{"v":1}`, "exactly one"},
		"newer version":    {`{"v":2,"cancel_sweep":{"id":"a"}}`, "version 2"},
		"no version":       {`{"cancel_sweep":{"id":"a"}}`, "version 0"},
		"something behind": {`{"v":1,"cancel_sweep":{"id":"a"}} {}`, "more data"},
		"cut":              {`{"v":1,"cancel_sweep":{"id":`, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := DecodeCommand([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("got %v, want %q", err, test.says)
			}
		})
	}
}

func TestEncodeCommandRefusesWhatJSONCannotSay(t *testing.T) {
	r := result(proto.Task{}, proto.OutcomePass)
	r.Evidence.Seconds = math.NaN()
	c := take(r)
	c.Version = CommandVersion
	if _, err := EncodeCommand(c); err == nil {
		t.Fatal("NaN went into the log")
	}
	if _, err := EncodeCommand(Command{}); err == nil {
		t.Fatal("an empty command went into the log")
	}
}

func FuzzDecodeCommand(f *testing.F) {
	for _, c := range fullLog(f).entries {
		c.Version = CommandVersion
		data, err := EncodeCommand(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := DecodeCommand(data)
		if err != nil {
			if text := err.Error(); len(text) > 2000 || strings.ContainsAny(text, "\n\r") {
				t.Errorf("an error of %d bytes: %.300q", len(text), text)
			}
			return
		}
		first, err := EncodeCommand(c)
		if err != nil {
			t.Fatalf("what was decoded does not encode: %v", err)
		}
		again, err := DecodeCommand(first)
		if err != nil {
			t.Fatalf("what was encoded does not decode: %v", err)
		}
		second, err := EncodeCommand(again)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("encoding is not stable: %s, %s, %v", first, second, err)
		}
		m := newLog(t)
		m.apply(sweep("s", 64))
		m.apply(c) // whatever was decoded can be applied, and the state be written
		snapshotOf(t, m.Machine)
	})
}
