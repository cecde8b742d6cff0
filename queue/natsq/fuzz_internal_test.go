package natsq

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/oomfleet/oomfleet/internal/secret"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
)

// message is one that came under a subject.
type message struct {
	jetstream.Msg
	subject string
	data    []byte
}

func (m message) Subject() string { return m.subject }
func (m message) Data() []byte    { return m.data }

// FuzzMessages: whatever a client with some credential publishes, a reader gets
// an error or what it may act on: a valid task is of its cell, and a result of the
// sender that its subject names.
func FuzzMessages(f *testing.F) {
	task := proto.Task{ID: "s-1-1", Protocol: proto.Version, Fence: 1, Kind: proto.TaskRecord, Origin: proto.OriginSimulated, TimeoutSeconds: 1,
		Cell: proto.Cell{QuotaKind: proto.QuotaAllocator, Env: map[string]string{}}}
	task.CellID = task.Cell.ID()
	result := proto.Result{Task: "s-1-1", Agent: "gpu-1", Origin: proto.OriginSimulated, Stack: proto.Stack{GPU: "g", Driver: "d"}}
	for subject, v := range map[string]any{"oomfleet.task.p.s-1-1": task, resultSubject(result): result, "oomfleet.control.p": proto.Control{Stop: []proto.TaskID{"s-1-1"}},
		"$KV.oomfleet_agents.gpu-1": proto.AgentInfo{ID: "gpu-1"}} {
		text, err := json.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(subject, text)
	}
	f.Fuzz(func(t *testing.T, subject string, data []byte) {
		m := message{subject: subject, data: data}
		if task, err := (&delivery{msg: m}).Task(); err == nil && task.Validate() == nil {
			text, err := json.Marshal(task)
			if err != nil {
				t.Fatal(err)
			}
			again, err := (&delivery{msg: message{subject: subject, data: text}}).Task()
			if err != nil || again.Validate() != nil || again.Cell.ID() != task.CellID || again.ID != task.ID || again.Fence != task.Fence || again.Quota != task.Quota {
				t.Errorf("%+v comes back as %+v, %v", task, again, err)
			}
		}
		if r, err := (&report{msg: m}).Result(); err == nil {
			if own := resultSubject(r); subject != own && subject != resultPrefix+string(r.Stack.Pool(r.Origin)) && resultPrefix+subject != own && subject != string(r.Stack.Pool(r.Origin)) {
				t.Errorf("under %q comes a result of %q", subject, own)
			}
		} else if errors.Is(err, queue.ErrForeign) && r.Task != "" {
			t.Errorf("a foreign result is handed on: %+v", r)
		}
		var c proto.Control
		if json.Unmarshal(data, &c) == nil {
			c.Stops(task)
			c.Drains("gpu-1")
		}
	})
}

// FuzzSeed: a seed is a user's whole key or refused, and the refusal shows
// nothing of it.
func FuzzSeed(f *testing.F) {
	seed, _, err := NewNKey()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed.Reveal())
	f.Add("SUAAAA")
	f.Fuzz(func(t *testing.T, text string) {
		public, err := PublicNKey(secret.Of(text))
		if err == nil && (len(public) != 56 || public[0] != 'U') {
			t.Errorf("a public key of %q", public)
		}
	})
}
