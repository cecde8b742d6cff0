package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/coordinator/diff"
	"github.com/oomfleet/oomfleet/coordinator/quota"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// refused is whether a command refused its input as it should: with the code of
// wrong input, and in no more words than the input has given cause for.
func refused(t *testing.T, size int, err error) bool {
	t.Helper()
	if err == nil {
		return false
	}
	var coded *codedError
	if !errors.As(err, &coded) || coded.code != exitUsage {
		t.Errorf("no refusal of the input: %v", err)
	}
	if text := err.Error(); len(text) > 4000+200*size {
		t.Errorf("an error of %d bytes about %d: %.300q", len(text), size, text)
	}
	return true
}

// reads is a command's app that reads a text from stdin.
func reads(in io.Reader) *app {
	return &app{streams: streams{in: in, out: io.Discard, err: io.Discard}, json: true}
}

// FuzzFitRuns: whatever the bytes, rows that can be fitted or a sentence; the same
// however the bytes come; and what is fitted can be asked.
func FuzzFitRuns(f *testing.F) {
	f.Add("seq_len,batch,peak_reserved_gb\n128,1,18.0\n256,1,19.5\n384,1,22\n")
	f.Add("seq_len,batch,chunk_size,env,weights_mib,peak_allocated_mib,process_mib,source\n#x\n8,2,64,A=1 B=2,900,1000.5,2000,\"a\"\"b\"\n")
	f.Add(`{"seq_len":128,"batch":1,"peak_reserved_bytes":9000000000,"weights_bytes":8000000000}` + "\n" +
		`{"seq_len":256,"batch":1,"peak_reserved_bytes":9900000000,"env":{"A":"1"},"cap_kind":"none"}`)
	f.Add("seq_len,batch,peak_reserved_gb\n0,x,-3\n1,1,18700\n1,2\n1,1,NaN\n")
	f.Fuzz(func(t *testing.T, text string) {
		table, err := reads(strings.NewReader(text)).readRuns("-", importLabels{})
		if len(text) < 256 {
			again, errAgain := reads(iotest.OneByteReader(strings.NewReader(text))).readRuns("-", importLabels{})
			if (err == nil) != (errAgain == nil) || err != nil && err.Error() != errAgain.Error() || !reflect.DeepEqual(table.rows, again.rows) {
				t.Errorf("byte by byte it is %+v, %v\nwas %+v, %v", again.rows, errAgain, table.rows, err)
			}
		}
		if refused(t, len(text), err) || len(table.rows) > 6 { // to fit takes long, and has nothing more to read
			return
		}
		all, err := reads(nil).fitRuns("stdin", table)
		if refused(t, len(text), err) {
			return
		}
		for _, c := range all {
			if m, err := quota.ModelOf(c); err != nil {
				t.Errorf("it is fitted and cannot be asked: %v", err)
			} else if p := m.Predict(c.Domain.SeqLen[0], c.Domain.Batch[0]); p.Value < 0 || p.Lo > p.Value || p.Value > p.Hi || !p.InDomain {
				t.Errorf("it is fitted and predicts %+v", p)
			}
		}
	})
}

// documents are the commands' readers of files, by what the first byte of an input
// says. Each checks what it took.
func documents() []func(t *testing.T, text []byte) error {
	return []func(t *testing.T, text []byte) error{
		func(t *testing.T, text []byte) error { // fit predict
			all, err := reads(bytes.NewReader(text)).readCoefficients("-")
			if err != nil {
				return err
			}
			group, err := (&groupChoice{}).pick(all)
			if err != nil {
				return wrongInput(err)
			}
			d, err := predict(group, predictFlags{seqLen: 300, batch: 1, extrapolate: true})
			if err != nil {
				return wrongInput(err)
			}
			for _, p := range []*forecast{d.Allocated, d.Reserved, d.Process} {
				if p != nil && (p.Value < 0 || p.Lo > p.Value || p.Value > p.Hi) {
					t.Errorf("it predicts %+v", *p)
				}
			}
			return writeJSON(io.Discard, d)
		},
		func(t *testing.T, text []byte) error { // coefficients import
			models, err := reads(bytes.NewReader(text)).readImport("-", importLabels{})
			for _, m := range models {
				if m.Origin != proto.OriginImported {
					t.Errorf("imported as %s", m.Origin)
				}
			}
			return err
		},
		func(t *testing.T, text []byte) error { // matrix diff
			r, err := reads(bytes.NewReader(text)).readReport("-")
			if err != nil || len(r.Cells) > 20 {
				return err
			}
			side := diff.Side{Name: "stdin", Report: r, Driver: r.Cells[0].Driver}
			_, err = diff.Sweeps(side, side, diff.Options{Margin: 16 * proto.MiB, Confidence: 0.95})
			return wrongInput(err)
		},
		func(t *testing.T, text []byte) error { // program predict
			p, err := reads(bytes.NewReader(text)).readProgram("-")
			if err != nil {
				return wrongInput(err)
			}
			for _, d := range p.Family.Domains() {
				if _, err := p.Family.At(d.SeqLenFrom, d.BatchFrom, d.Chunk); err != nil {
					return wrongInput(err)
				}
			}
			return nil
		},
		func(_ *testing.T, text []byte) error { // registry restore
			_, err := readBackup(text)
			return wrongInput(err)
		},
		func(t *testing.T, text []byte) error { // --cap, --quota and --env
			cap, env, _ := strings.Cut(string(text), "\n")
			amount, err := positive("--quota", cap)
			if err != nil {
				return err
			}
			if back, err := proto.ParseBytes(strings.TrimSuffix(cap, "0")); amount > 0 && err == nil && back > amount {
				t.Errorf("%q is %d, and without its last zero %d", cap, amount, back)
			}
			_, err = settingsOf(strings.Split(env, "\n"), allocator.Settings{})
			return wrongInput(err)
		},
		func(t *testing.T, text []byte) error { // doctor
			log, err := reads(bytes.NewReader(text)).readLog("-")
			if err == nil && (log.Reading.Kind == "" || doctorKind(log.Reading.Kind) == "") {
				t.Errorf("read as %+v", log.Reading)
			}
			return err
		},
	}
}

// FuzzDocuments: whatever a command is given as a file, an answer or a sentence.
func FuzzDocuments(f *testing.F) {
	model := `{"target":"process","terms":[{"name":"weights","value":5,"unit":"bytes","lo":4,"hi":6}]`
	for kind, texts := range [][]string{
		{`{"coefficients":[{"target":"reserved","terms":[{"name":"BL","value":5,"lo":4,"hi":6}],"domain":{"seq_len":[1,900],"batch":[1,2]}}]}`,
			`{"coefficients":[` + model + `,"domain":{"seq_len":[1,9],"batch":[1,1]},"model":` + model + `,"domain":{"seq_len":[1,9],"batch":[1,1]},` +
				`"components":[{"sets":[{"names":["weights"],"values":[5],"cov":[[1]],"dof":2}]}]}}]}`},
		{`{"coefficients":[{"origin":"measured"}]}`, "seq_len,batch,peak_reserved_mib\n1,1,2\n2,1,3\n3,1,4\n"},
		{`{"matrix":{"id":"a-1"},"state":"settled","origin":"simulated","cells":[{"id":"c","seq_len":1,"batch":1,"driver":"d","origin":"simulated","quota_kind":"allocator","state":"settled","boundary_bytes":2097152}]}`},
		{`{"version":1,"programs":{"version":1,"pieces":[{"seq_len":[1,1],"batch":[1,1],"tested":["untested","untested"],"recorded":[[1,1]],"streams":[0],"sizes":[{"terms":{"BL":"512"}}],"steps":"YmAABAAA//8="}]}}`},
		{packedBackup(f)},
		{"11012MiB\nPYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128", "0.5 GiB\nA=b\nA=c", "1152921504606846976"},
		{article, "all is well\n"},
	} {
		for _, text := range texts {
			f.Add(byte(kind), []byte(text))
		}
	}
	all := documents()
	f.Fuzz(func(t *testing.T, kind byte, text []byte) {
		refused(t, len(text), all[int(kind)%len(all)](t, text))
	})
}

// packedBackup is the backup of a registry that holds nothing.
func packedBackup(f *testing.F) string {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if err := errors.Join(registry.New().View().WriteBackup(w), w.Close()); err != nil {
		f.Fatal(err)
	}
	return out.String()
}
