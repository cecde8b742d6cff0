package outcome

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

// sample is one line of testdata/oom_messages.jsonl.
type sample struct {
	ID        string       `json:"id"`
	Text      string       `json:"text"`
	Kind      string       `json:"kind"`
	Tried     *proto.Bytes `json:"tried_bytes"`
	Total     *proto.Bytes `json:"total_bytes"`
	Free      *proto.Bytes `json:"free_bytes"`
	Allocated *proto.Bytes `json:"allocated_bytes"`
	Reserved  *proto.Bytes `json:"reserved_bytes"`
	Allowed   *proto.Bytes `json:"allowed_bytes"`
}

func (s sample) reading() Reading {
	return Reading{Kind: s.Kind, Tried: s.Tried, Total: s.Total, Free: s.Free, Allocated: s.Allocated, Reserved: s.Reserved, Allowed: s.Allowed}
}

func samples(t testing.TB) []sample {
	t.Helper()
	file, err := os.Open("testdata/oom_messages.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []sample
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var s sample
		if err := json.Unmarshal(scanner.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	if len(all) != 62 {
		t.Fatalf("%d samples, want 62", len(all))
	}
	return all
}

// show is a reading as JSON, so that nil and numbers compare as text.
func show(r Reading) string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func TestReadSamples(t *testing.T) {
	for _, s := range samples(t) {
		t.Run(s.ID, func(t *testing.T) {
			if got, want := show(Read(s.Text)), show(s.reading()); got != want {
				t.Errorf("%q\n got %s\nwant %s", s.Text, got, want)
			}
		})
	}
}

// brief is show without the numbers that are not known.
func brief(r Reading) string {
	text, err := json.Marshal(struct {
		Kind      string
		Tried     *proto.Bytes `json:",omitempty"`
		Total     *proto.Bytes `json:",omitempty"`
		Free      *proto.Bytes `json:",omitempty"`
		Allocated *proto.Bytes `json:",omitempty"`
		Reserved  *proto.Bytes `json:",omitempty"`
		Allowed   *proto.Bytes `json:",omitempty"`
	}{r.Kind, r.Tried, r.Total, r.Free, r.Allocated, r.Reserved, r.Allowed})
	if err != nil {
		panic(err)
	}
	return string(text)
}
