package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// parcel is one finished run on its way home.
type parcel struct {
	Result proto.Result `json:"result"`
	events []allocator.Event
	meta   trace.Meta
}

// outbox keeps finished runs on disk until they are delivered: NAME.parquet for
// the trace, then NAME.json for the result. Each is written under a temporary
// name, synced and renamed, so that a file which is there is whole.
type outbox struct {
	dir string
}

func openOutbox(workDir string) (*outbox, error) {
	dir := filepath.Join(workDir, "outbox")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the agent's outbox: %w", err)
	}
	return &outbox{dir}, nil
}

func (o *outbox) base(r proto.Result) string {
	return filepath.Join(o.dir, fmt.Sprintf("%s-%d", filepath.Base(string(r.Task)), r.Fence))
}

// put writes a parcel; it counts once the result's file is there.
func (o *outbox) put(p parcel) error {
	base := o.base(p.Result)
	if len(p.events) > 0 {
		err := writeWhole(base+".parquet", func(f *os.File) error { return trace.Encode(f, p.events, p.meta) })
		if err != nil {
			return fmt.Errorf("keep the trace of %s: %w", p.Result.Task, err)
		}
	}
	err := writeWhole(base+".json", func(f *os.File) error { return json.NewEncoder(f).Encode(p) })
	if err != nil {
		return fmt.Errorf("keep the result of %s: %w", p.Result.Task, err)
	}
	return nil
}

// writeWhole writes a file so that it is there whole or not at all.
func writeWhole(path string, write func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".part-*")
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// remove forgets a parcel, the result first: a trace without one means nothing.
func (o *outbox) remove(p parcel) {
	base := o.base(p.Result)
	os.Remove(base + ".json")
	os.Remove(base + ".parquet")
}

func (o *outbox) count() int {
	names, _ := filepath.Glob(filepath.Join(o.dir, "*.json"))
	return len(names)
}

// list reads the parcels that are there and clears away what a crash left half
// written. One that cannot be read is put aside under .bad, for a person.
func (o *outbox) list(log *slog.Logger) []parcel {
	entries, err := os.ReadDir(o.dir)
	if err != nil {
		log.Error("outbox cannot be read", "error", err)
		return nil
	}
	var out []parcel
	for _, e := range entries {
		path := filepath.Join(o.dir, e.Name())
		if strings.HasPrefix(e.Name(), ".part-") {
			os.Remove(path)
			continue
		}
		base, isResult := strings.CutSuffix(path, ".json")
		if !isResult {
			continue
		}
		p, err := o.read(base)
		if err != nil {
			log.Error("leftover result cannot be read, it is put aside", "file", path, "error", err)
			os.Rename(path, path+".bad")
			continue
		}
		out = append(out, p)
	}
	return out
}

func (o *outbox) read(base string) (parcel, error) {
	var p parcel
	text, err := os.ReadFile(base + ".json")
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("result: %w", err)
	}
	if _, err := os.Stat(base + ".parquet"); err == nil {
		if p.events, p.meta, err = trace.ReadFile(base + ".parquet"); err != nil {
			return p, fmt.Errorf("trace: %w", err)
		}
	}
	return p, nil
}
