package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// The endings of the outbox's files. A part is half written, and a bad result
// cannot be read: it waits for a person.
const (
	resultSuffix = ".json"
	traceSuffix  = ".parquet"
	badSuffix    = ".bad"
	partPrefix   = ".part-"
)

// parcel is one finished run on its way home.
type parcel struct {
	Result proto.Result
	events []allocator.Event // nil for none
	meta   trace.Meta
}

// letter is the result's file.
type letter struct {
	Result proto.Result `json:"result"`
	// Trace says that a trace lies beside it.
	Trace bool `json:"trace"`
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

// nameOf is the name of a result's files without their endings.
func nameOf(r proto.Result) string {
	return fmt.Sprintf("%s-%d", filepath.Base(string(r.Task)), r.Fence)
}

func (o *outbox) path(name, suffix string) string { return filepath.Join(o.dir, name+suffix) }

// put writes a parcel; it counts once the result's file is there.
func (o *outbox) put(p parcel) error {
	name := nameOf(p.Result)
	if len(p.events) > 0 {
		err := writeWhole(o.path(name, traceSuffix), func(f *os.File) error { return trace.Encode(f, p.events, p.meta) })
		if err != nil {
			return fmt.Errorf("keep the trace of %s: %w", p.Result.Task, err)
		}
	}
	err := writeWhole(o.path(name, resultSuffix), func(f *os.File) error {
		return json.NewEncoder(f).Encode(letter{p.Result, len(p.events) > 0})
	})
	if err != nil {
		return fmt.Errorf("keep the result of %s: %w", p.Result.Task, err)
	}
	return nil
}

// writeWhole writes a file so that it is there whole or not at all. It makes
// the folder anew if someone took it away.
func writeWhole(path string, write func(*os.File) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), partPrefix+"*")
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
	name := nameOf(p.Result)
	os.Remove(o.path(name, resultSuffix))
	os.Remove(o.path(name, traceSuffix))
}

// mostAside is how many files of parcels that cannot be read are kept.
const mostAside = 32

// putAside takes a parcel that cannot be read out of the way. Of all those the
// oldest go, so that whatever writes them does not fill the disk.
func (o *outbox) putAside(name string) {
	for _, suffix := range []string{resultSuffix, traceSuffix} {
		os.Rename(o.path(name, suffix), o.path(name, suffix+badSuffix))
	}
	type file struct {
		name string
		at   time.Time
	}
	var aside []file
	_, others, _ := o.names()
	for _, other := range others {
		if st, err := os.Lstat(filepath.Join(o.dir, other)); err == nil && strings.HasSuffix(other, badSuffix) {
			aside = append(aside, file{other, st.ModTime()})
		}
	}
	slices.SortFunc(aside, func(a, b file) int { return b.at.Compare(a.at) })
	for _, old := range aside[min(mostAside, len(aside)):] {
		os.Remove(filepath.Join(o.dir, old.name))
	}
}

// names are the parcels that are there, and everything else beside them.
func (o *outbox) names() (parcels, others []string, err error) {
	entries, err := os.ReadDir(o.dir)
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), resultSuffix); ok {
			parcels = append(parcels, name)
		} else {
			others = append(others, e.Name())
		}
	}
	return parcels, others, err
}

func (o *outbox) count() int {
	parcels, _, _ := o.names()
	return len(parcels)
}

// tidy clears away what a crash left half written and names the parcels that
// are there. Nothing may be put meanwhile.
func (o *outbox) tidy(log *slog.Logger) []string {
	parcels, others, err := o.names()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Error("outbox cannot be read", "error", err)
	}
	for _, file := range others {
		name, isTrace := strings.CutSuffix(file, traceSuffix)
		if strings.HasPrefix(file, partPrefix) || isTrace && !exists(o.path(name, resultSuffix)) {
			os.Remove(filepath.Join(o.dir, file))
		}
	}
	return parcels
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func (o *outbox) read(name string) (parcel, error) {
	text, err := os.ReadFile(o.path(name, resultSuffix))
	if err != nil {
		return parcel{}, err
	}
	var l letter
	if err := json.Unmarshal(text, &l); err != nil {
		return parcel{}, fmt.Errorf("result: %w", err)
	}
	p := parcel{Result: l.Result}
	switch r := l.Result; {
	case r.Protocol != proto.Version:
		return parcel{}, fmt.Errorf("result of protocol %d, this build speaks %d", r.Protocol, proto.Version)
	case r.Agent == "" || nameOf(r) != name:
		return parcel{}, errors.New("result does not say whose it is")
	}
	if l.Trace {
		if p.events, p.meta, err = trace.ReadFile(o.path(name, traceSuffix)); err != nil {
			return parcel{}, fmt.Errorf("trace: %w", err)
		}
	}
	return p, nil
}
