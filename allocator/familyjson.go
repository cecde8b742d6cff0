package allocator

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"strings"
)

// familyVersion is the version of the JSON form; another is refused.
const familyVersion = 1

// Bounds on what a file may make this process hold: deflated, a few kilobytes can
// be any number of steps. A recording of the most events that a trace may have
// stays below both.
const (
	maxSteps    = 1 << 24 // of one program, loops unrolled
	maxStepFile = 1 << 25 // bytes of unpacked steps, of all pieces
)

type familyDoc struct {
	Version int        `json:"version"`
	Pieces  []pieceDoc `json:"pieces"`
}

// pieceDoc is one piece. Steps are packed: for each one a varint of kind and
// argument, behind an allocation the index of its size; deflated.
type pieceDoc struct {
	Chunk    int       `json:"chunk_size"`
	SeqLen   [2]int    `json:"seq_len"`
	Batch    [2]int    `json:"batch"`
	Partial  bool      `json:"partial_chunks"`
	Tested   []Tested  `json:"tested"` // of full and of partial chunks
	Recorded [][2]int  `json:"recorded"`
	Streams  []int64   `json:"streams"`
	Base     int       `json:"base"` // index into Recorded
	Loops    [][2]int  `json:"loops"`
	Sizes    []sizeDoc `json:"sizes"`
	Steps    []byte    `json:"steps"`
	// Segments are addresses and sizes of those of the largest recording.
	Segments [][2]uint64 `json:"segments,omitempty"`
}

// sizeDoc is one polynomial: exact coefficients by monomial ("1", "L", "BL2").
type sizeDoc struct {
	Terms  map[string]string `json:"terms"`
	PerRow bool              `json:"per_row,omitempty"`
}

func (m monomial) String() string {
	s := strings.Repeat("B", m.b)
	switch {
	case m.l > 1:
		s += fmt.Sprint("L", m.l)
	case m.l == 1:
		s += "L"
	case s == "":
		s = "1"
	}
	return s
}

// MarshalJSON writes the family in a form that UnmarshalJSON reads; the same
// family gives the same bytes.
func (f *Family) MarshalJSON() ([]byte, error) {
	doc := familyDoc{Version: familyVersion}
	for _, p := range f.pieces {
		steps, err := p.pack()
		if err != nil {
			return nil, err
		}
		d := &p.domain
		out := pieceDoc{
			Chunk: d.Chunk, SeqLen: [2]int{d.SeqLenFrom, d.SeqLenTo}, Batch: [2]int{d.BatchFrom, d.BatchTo},
			Partial: d.Partial, Tested: []Tested{d.Tested, d.partialTested}, Streams: p.streams, Steps: steps,
		}
		for i, c := range d.recorded {
			out.Recorded = append(out.Recorded, [2]int{c.seqLen, c.batch})
			if c == p.base {
				out.Base = i
			}
		}
		for _, s := range p.places {
			out.Segments = append(out.Segments, [2]uint64{s.addr, uint64(s.size)})
		}
		for _, s := range p.sites {
			out.Loops = append(out.Loops, [2]int{s.at, s.length})
		}
		for _, size := range p.sizes {
			terms := map[string]string{}
			for _, t := range size.terms {
				terms[t.monomial.String()] = t.coef.RatString()
			}
			out.Sizes = append(out.Sizes, sizeDoc{terms, size.perRow})
		}
		doc.Pieces = append(doc.Pieces, out)
	}
	return json.Marshal(doc)
}

func (p *piece) pack() ([]byte, error) {
	var raw []byte
	for k, s := range p.steps {
		raw = binary.AppendUvarint(raw, uint64(s.arg)<<3|uint64(s.kind))
		if s.kind == opAlloc {
			raw = binary.AppendUvarint(raw, uint64(p.sizeOf[k]))
		}
	}
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(raw); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

// UnmarshalJSON reads what MarshalJSON wrote and checks that every piece gives
// a whole program.
func (f *Family) UnmarshalJSON(text []byte) error {
	var doc familyDoc
	if err := json.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("read allocation programs: %.300w", err)
	}
	if doc.Version != familyVersion {
		return fmt.Errorf("read allocation programs: version %d, this build reads version %d", doc.Version, familyVersion)
	}
	var pieces []*piece
	room := maxStepFile
	for i, d := range doc.Pieces {
		p, err := d.piece(&room)
		if err != nil {
			return fmt.Errorf("read allocation programs: piece %d: %w", i, err)
		}
		pieces = append(pieces, p)
	}
	f.pieces = pieces
	return nil
}

// piece reads one; room is how many bytes of steps it and those behind it may have.
func (d *pieceDoc) piece(room *int) (*piece, error) {
	p := &piece{streams: d.Streams, domain: Domain{
		Chunk: d.Chunk, SeqLenFrom: d.SeqLen[0], SeqLenTo: d.SeqLen[1],
		BatchFrom: d.Batch[0], BatchTo: d.Batch[1], Partial: d.Partial,
	}}
	for _, c := range d.Recorded {
		p.domain.recorded = append(p.domain.recorded, cell{c[0], c[1], d.Chunk})
	}
	if d.Base < 0 || d.Base >= len(d.Recorded) || len(d.Tested) != 2 || d.Chunk < 0 {
		return nil, fmt.Errorf("the base, the tests or the chunk size are missing")
	}
	p.base, p.domain.Tested, p.domain.partialTested = p.domain.recorded[d.Base], d.Tested[0], d.Tested[1]
	if p.base.seqLen < 1 || p.base.batch < 1 {
		return nil, fmt.Errorf("%v is no cell", p.base)
	}
	for _, s := range d.Sizes {
		size, err := s.polynomial()
		if err != nil {
			return nil, err
		}
		if size.perRow && d.Chunk == 0 {
			return nil, fmt.Errorf("a size by rows without chunks")
		}
		p.sizes = append(p.sizes, size)
	}
	if err := p.unpack(d.Steps, room); err != nil {
		return nil, err
	}
	last := 0
	for _, l := range d.Loops {
		if l[0] < last || l[0] > len(p.steps) || l[1] < 1 || l[1] > l[0] {
			return nil, fmt.Errorf("a loop of %d steps before step %d", l[1], l[0])
		}
		last = l[0]
		p.sites = append(p.sites, site{l[0], l[1]})
	}
	for i, s := range d.Segments {
		if s[1] == 0 || s[1] > math.MaxInt64 || s[0] > math.MaxInt64 {
			return nil, fmt.Errorf("segment %d is damaged", i)
		}
		p.places = append(p.places, recorded{span: span{s[0], int64(s[1])}})
	}
	if err := noteHidden(p.places, hiddenWork); err != nil {
		return nil, err
	}
	noteAgain(p.places)
	_, err := p.extend(p.base)
	return p, err
}

func (p *piece) unpack(packed []byte, room *int) error {
	raw, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), int64(*room)+1))
	if err != nil {
		return fmt.Errorf("unpack steps: %w", err)
	}
	if *room -= len(raw); *room < 0 {
		return fmt.Errorf("the steps take more than %d bytes, which no program does", maxStepFile)
	}
	for len(raw) > 0 {
		v, n := binary.Uvarint(raw)
		s := step{opKind(v & 7), int32(v >> 3)}
		if n <= 0 || v>>34 != 0 || s.kind > opFlush {
			return fmt.Errorf("step %d is damaged", len(p.steps))
		}
		raw = raw[n:]
		size := uint64(0)
		if s.kind == opAlloc {
			size, n = binary.Uvarint(raw)
			if n <= 0 || size >= uint64(len(p.sizes)) || int(s.arg) >= len(p.streams) {
				return fmt.Errorf("step %d has no size or stream", len(p.steps))
			}
			raw = raw[n:]
		}
		p.steps, p.sizeOf = append(p.steps, s), append(p.sizeOf, int32(size))
	}
	return nil
}

func (s *sizeDoc) polynomial() (polynomial, error) {
	out := polynomial{perRow: s.PerRow}
	for _, m := range basis(3, true) {
		text, ok := s.Terms[m.String()]
		if !ok {
			continue
		}
		coef, valid := new(big.Rat), len(text) <= 64 && strings.Trim(text, "-/0123456789") == ""
		if valid {
			_, valid = coef.SetString(text)
		}
		if !valid {
			return out, fmt.Errorf("%.80q is no coefficient", text)
		}
		out.terms = append(out.terms, term{m, coef})
	}
	if len(out.terms) != len(s.Terms) {
		return out, errors.New("a size has a term of an unknown monomial")
	}
	return out, nil
}
