package registry

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"time"
)

// SnapshotVersion is the version of the snapshot form that this build writes
// and the only one that it reads.
const SnapshotVersion = 1

const snapshotFormat = "oomfleet-registry"

// A snapshot is JSON lines: a header, one line for each item in sorted order
// (so that equal states are equal bytes), and an end line with the SHA-256 of
// all before it. A file without a matching end line was cut or altered.
type snapshotHeader struct {
	Format       string    `json:"format"`
	Version      int       `json:"version"`
	AppliedIndex uint64    `json:"applied_index"`
	AppliedTime  time.Time `json:"applied_time"`
	Late         int       `json:"late"`
	Restored     uint64    `json:"restored_index,omitempty"`
}

// snapshotLine is one line after the header; exactly one field is set.
type snapshotLine struct {
	Sweep        *Sweep          `json:"sweep,omitempty"`
	Record       *Record         `json:"record,omitempty"`
	History      *CoefficientSet `json:"history,omitempty"`
	Coefficients *CoefficientSet `json:"coefficients,omitempty"`
	Settlement   *earlierSettled `json:"settlement,omitempty"`
	Program      *Program        `json:"program,omitempty"`
	Member       *Member         `json:"member,omitempty"`
	End          *snapshotEnd    `json:"end,omitempty"`
}

// earlierSettled is one settlement of before a cell was reopened.
type earlierSettled struct {
	Key        Key        `json:"key"`
	Settlement Settlement `json:"settlement"`
}

type snapshotEnd struct {
	SHA256 string `json:"sha256"`
	Lines  int    `json:"lines"`
}

// Snapshot writes the state; see View.WriteSnapshot.
func (m *Machine) Snapshot(w io.Writer) error { return m.View().WriteSnapshot(w) }

// WriteSnapshot writes the view in a form that Restore reads. It may run while
// the machine goes on.
func (v View) WriteSnapshot(w io.Writer) error {
	s := newSnapshotWriter(w)
	v.writeTo(s)
	sum := hex.EncodeToString(s.sum.Sum(nil))
	s.line(snapshotLine{End: &snapshotEnd{SHA256: sum, Lines: s.lines}})
	if s.err == nil {
		s.err = s.out.Flush()
	}
	if s.err != nil {
		return fmt.Errorf("write registry snapshot: %w", s.err)
	}
	return nil
}

// Hash is the SHA-256 of the view's snapshot, without the end line, in
// hexadecimal: equal states have equal hashes.
func (v View) Hash() string {
	s := newSnapshotWriter(io.Discard)
	v.writeTo(s)
	if s.err != nil {
		panic(fmt.Sprintf("registry: plain data always marshals once it came through the log: %v", s.err))
	}
	return hex.EncodeToString(s.sum.Sum(nil))
}

func (v View) writeTo(s *snapshotWriter) {
	s.line(snapshotHeader{Format: snapshotFormat, Version: SnapshotVersion, AppliedIndex: v.AppliedIndex, AppliedTime: v.AppliedTime, Late: v.Late,
		Restored: v.Restored})
	for _, id := range slices.Sorted(maps.Keys(v.Sweeps)) {
		s.line(snapshotLine{Sweep: v.Sweeps[id]})
	}
	for _, key := range slices.SortedFunc(maps.Keys(v.Records), Key.Compare) {
		s.line(snapshotLine{Record: v.Records[key]})
	}
	for _, key := range slices.SortedFunc(maps.Keys(v.Settlements), Key.Compare) {
		for _, earlier := range v.Settlements[key] {
			s.line(snapshotLine{Settlement: &earlierSettled{key, *earlier}})
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(v.Coefficients), GroupKey.Compare) {
		for _, set := range v.History[key] {
			s.line(snapshotLine{History: set})
		}
		s.line(snapshotLine{Coefficients: v.Coefficients[key]})
	}
	for _, key := range slices.SortedFunc(maps.Keys(v.Programs), FamilyKey.Compare) {
		s.line(snapshotLine{Program: v.Programs[key]})
	}
	for _, id := range slices.Sorted(maps.Keys(v.Members)) {
		member := v.Members[id]
		s.line(snapshotLine{Member: &member})
	}
}

// Compare orders keys: origin, then cell id.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Origin, o.Origin), cmp.Compare(k.Cell, o.Cell))
}

// Compare orders keys: origin, quota kind, group.
func (k GroupKey) Compare(o GroupKey) int {
	return cmp.Or(cmp.Compare(k.Origin, o.Origin), cmp.Compare(k.QuotaKind, o.QuotaKind), cmp.Compare(k.Group, o.Group))
}

type snapshotWriter struct {
	out   *bufio.Writer
	sum   hash.Hash
	lines int
	err   error // the first one; later lines are dropped
}

func newSnapshotWriter(w io.Writer) *snapshotWriter {
	return &snapshotWriter{out: bufio.NewWriterSize(w, 1<<16), sum: sha256.New()}
}

func (s *snapshotWriter) line(value any) {
	if s.err != nil {
		return
	}
	text, err := json.Marshal(value)
	if err != nil {
		s.err = err
		return
	}
	text = append(text, '\n')
	s.sum.Write(text)
	s.lines++
	_, s.err = s.out.Write(text)
}

// Restore replaces the state by that of a snapshot. On any error the machine
// stays as it was. A cut or altered snapshot gives ErrSnapshotDamaged, one that
// another version wrote ErrSnapshotVersion; both say how to recover.
func (m *Machine) Restore(r io.Reader) error {
	next, err := readSnapshot(r)
	if err != nil {
		return fmt.Errorf("restore registry snapshot: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.appliedIndex, m.appliedTime, m.late = next.appliedIndex, next.appliedTime, next.late
	m.sweeps, m.records, m.members = next.sweeps, next.records, next.members
	m.coefficients, m.history, m.programs = next.coefficients, next.history, next.programs
	m.settlements, m.restored = next.settlements, next.restored
	return nil
}

func damaged(line int, what string) error {
	return fmt.Errorf("%w at line %d: %s; to recover, move it out of the way and start from the snapshot before it, "+
		"or empty this node's data folder and let the leader send its state", ErrSnapshotDamaged, line, what)
}

func readSnapshot(r io.Reader) (*Machine, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	sum, next := sha256.New(), New()
	for number := 1; ; number++ {
		text, err := in.ReadBytes('\n')
		if err == io.EOF {
			return nil, damaged(number, "it ends without its end line")
		}
		if err != nil {
			return nil, fmt.Errorf("read line %d: %w", number, err)
		}
		if number == 1 {
			if err := next.readHeader(text); err != nil {
				return nil, err
			}
			sum.Write(text)
			continue
		}
		var line snapshotLine
		if err := decodeStrict(text, &line); err != nil {
			return nil, damaged(number, fmt.Sprintf("%.300v", err))
		}
		if line.End == nil {
			sum.Write(text)
			if !next.readLine(line) {
				return nil, damaged(number, "it holds nothing that this build knows")
			}
			continue
		}
		if line.End.Lines != number-1 || line.End.SHA256 != hex.EncodeToString(sum.Sum(nil)) {
			return nil, damaged(number, "its checksum does not match")
		}
		if _, err := in.ReadByte(); err != io.EOF {
			return nil, damaged(number+1, "it goes on after its end line")
		}
		return next, nil
	}
}

// readHeader looks at format and version first, and leniently: the header of
// another version may have fields that this build does not know.
func (m *Machine) readHeader(text []byte) error {
	var known struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&known); err != nil || known.Format != snapshotFormat {
		return damaged(1, "it does not begin as a registry snapshot")
	}
	if known.Version != SnapshotVersion {
		return fmt.Errorf("%w: version %d, this build reads %d; to recover, start the build that wrote it or a newer one",
			ErrSnapshotVersion, known.Version, SnapshotVersion)
	}
	var header snapshotHeader
	if err := decodeStrict(text, &header); err != nil {
		return damaged(1, fmt.Sprintf("%.300v", err))
	}
	m.appliedIndex, m.appliedTime, m.late, m.restored = header.AppliedIndex, header.AppliedTime, header.Late, header.Restored
	return nil
}

func (m *Machine) readLine(line snapshotLine) bool {
	switch {
	case line.Sweep != nil:
		m.sweeps.put(line.Sweep.ID, line.Sweep)
	case line.Record != nil:
		m.records.put(line.Record.Key, line.Record)
	case line.History != nil:
		m.history.put(line.History.Key, append(m.history.m[line.History.Key], line.History))
	case line.Coefficients != nil:
		m.coefficients.put(line.Coefficients.Key, line.Coefficients)
	case line.Settlement != nil:
		key, settlement := line.Settlement.Key, line.Settlement.Settlement
		m.settlements.put(key, append(m.settlements.m[key], &settlement))
	case line.Program != nil:
		m.programs.put(line.Program.Family, line.Program)
	case line.Member != nil && line.Member.API == "": // it has left: older builds kept it, and SetMember forgets it
	case line.Member != nil:
		m.members.put(line.Member.ID, *line.Member)
	default:
		return false
	}
	return true
}
