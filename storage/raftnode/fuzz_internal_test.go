package raftnode

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/oomfleet/oomfleet/storage/registry"
)

// FuzzUnpack: an entry of the log is a command that packs again, or an error: the
// node then stops with a sentence.
func FuzzUnpack(f *testing.F) {
	p, err := newPacker()
	if err != nil {
		f.Fatal(err)
	}
	small := registry.Command{Version: 1, CancelSweep: &registry.CancelSweep{ID: "s"}}
	large := registry.Command{Version: 1, AddSweep: &registry.AddSweep{ID: "s", Source: string(make([]byte, 2*packAbove))}}
	for _, c := range []registry.Command{small, large} {
		entry, err := p.pack(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(entry)
	}
	f.Add([]byte{})
	f.Add([]byte{7, 1, 2})
	f.Fuzz(func(t *testing.T, entry []byte) {
		c, err := p.unpack(entry)
		if err != nil {
			return
		}
		packed, err := p.pack(c)
		if err != nil {
			t.Fatalf("it does not pack again: %v", err)
		}
		again, err := p.unpack(packed)
		if a, b := encoded(t, c), encoded(t, again); err != nil || a != b {
			t.Fatalf("%s comes back as %s, %v", a, b, err)
		}
		registry.New().Apply(1, time.Unix(0, 0), c)
	})
}

// encoded is a command as text.
func encoded(t *testing.T, c registry.Command) string {
	t.Helper()
	text, err := registry.EncodeCommand(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// FuzzAsked: whatever comes to the raft port behind the byte of a question is
// answered with one document or not at all, and what other nodes were noted to be
// is read again as it was written, or refused with what to do.
func FuzzAsked(f *testing.F) {
	f.Add([]byte("{\"at\":3}\n"), []byte(`{"b":{"file":"h:1","log":"h:2"}}`))
	f.Add([]byte("{\"at\":-1}"), []byte(`{"":{}}`))
	f.Add(append(bytes.Repeat([]byte(" "), 5000), '\n'), []byte("null"))
	f.Fuzz(func(t *testing.T, asked, noted []byte) {
		var at []uint64
		s := &stream{ctx: t.Context()}
		stand := func(_ context.Context, q question) standing {
			at = append(at, q.At)
			return standing{ID: "a", Applied: q.At}
		}
		s.stand.Store(&stand)
		conn := &heard{Reader: bytes.NewReader(asked)}
		s.answer(conn, asked[:len(asked)/2])
		var out standing
		err := json.Unmarshal(conn.said.Bytes(), &out)
		if len(at) > 1 || len(at) == 1 && (err != nil || out.Applied != at[0]) || len(at) == 0 && conn.said.Len() > 0 {
			t.Errorf("asked for %v, answered %q", at, conn.said.Bytes())
		}

		dir := t.TempDir()
		file := filepath.Join(dir, "addresses.json")
		if err := os.WriteFile(file, noted, 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := openAddresses(dir)
		if err != nil {
			if !strings.Contains(err.Error(), "remove "+file) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v", err)
			}
			return
		}
		if err := a.note([]Server{{ID: "b", RaftAddr: "h:9"}}, []raft.Server{{ID: "b", Address: "h:2"}}); err != nil {
			t.Fatal(err)
		}
		again, err := openAddresses(dir)
		if err != nil || len(again.noted) != 1 || again.of("b", "h:2") != a.of("b", "h:2") {
			t.Errorf("%+v is read as %+v, %v", a, again, err)
		}
	})
}

// heard is a connection that keeps what is said on it.
type heard struct {
	net.Conn
	io.Reader
	said bytes.Buffer
}

func (h *heard) Read(p []byte) (int, error)    { return h.Reader.Read(p) }
func (h *heard) Write(p []byte) (int, error)   { return h.said.Write(p) }
func (h *heard) SetDeadline(_ time.Time) error { return nil }
