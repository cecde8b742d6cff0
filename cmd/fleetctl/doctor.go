package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/agent/outcome"
	"github.com/oomfleet/oomfleet/proto"
)

// doctorDocument is the document of doctor; what the text does not
// hold is null.
type doctorDocument struct {
	Kind      string       `json:"kind"`
	Tried     *proto.Bytes `json:"tried_bytes"`
	Total     *proto.Bytes `json:"total_bytes"`
	Free      *proto.Bytes `json:"free_bytes"`
	Allocated *proto.Bytes `json:"allocated_bytes"`
	Reserved  *proto.Bytes `json:"reserved_bytes"`
	Allowed   *proto.Bytes `json:"allowed_bytes"`
	Advice    string       `json:"advice"`
}

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{Use: "doctor FILE|-", Short: "Say what an out-of-memory text means and what to do", Args: cobra.ExactArgs(1),
		Long: `Doctor reads the text of an error, or a whole log of any size, and says what was
refused, by whom, and what to do next. It needs no fleet and no GPU.

Of several refusals the last counts, as a program may live through the others;
those that one traceback chains are one, of which the first counts. A text
without any is a result too: kind not_oom.`,
		Example: "  fleetctl doctor train.log\n  kubectl logs job/fold | fleetctl doctor -",
		RunE: func(_ *cobra.Command, args []string) error {
			log, err := a.readLog(args[0])
			if err != nil {
				return err
			}
			a.severalRefusals(log)
			r := log.Reading
			d := doctorDocument{Kind: r.Kind, Tried: r.Tried, Total: r.Total, Free: r.Free, Allocated: r.Allocated, Reserved: r.Reserved,
				Allowed: r.Allowed, Advice: outcome.Advise(r)}
			if a.json {
				return writeJSON(a.out, d)
			}
			return d.write(a.out, log.Line)
		}}
}

// readLog reads a file, or stdin for "-". What holds no text at all is wrong
// input: "no allocation failed" would be a claim about something not looked at.
func (a *app) readLog(path string) (outcome.Log, error) {
	in, name, err := a.input(path, "the log")
	if err != nil {
		return outcome.Log{}, err
	}
	defer in.Close()
	log, err := outcome.ReadLog(in)
	var bad *os.PathError // a directory, for one
	switch {
	case errors.As(err, &bad):
		return log, wrongInput(err)
	case err != nil:
		return log, err
	case log.Size == 0:
		return log, usagef("%s is empty: give the text of the error, or the log that holds it", name)
	case log.Reading.Kind == outcome.KindNotOOM && log.Binary():
		return log, usagef("%s is no text (is it compressed?): give the log itself, for example with zcat %s | fleetctl doctor -", name, path)
	}
	return log, nil
}

// severalRefusals says which of several refusals is told.
func (a *app) severalRefusals(log outcome.Log) {
	if log.Refusals < 2 {
		return
	}
	first := "in line " + fmt.Sprint(log.FirstLine)
	if log.First.Tried != nil {
		first += ", when " + log.First.Tried.String() + " was asked for"
	}
	fmt.Fprintf(a.err, "%d refusals in this log; this is about the one in line %d; the first is %s (%s)\n", log.Refusals, log.Line, first, log.First.Kind)
}

// write shows the document to a person: what is known, then the advice.
func (d doctorDocument) write(w io.Writer, line int) error {
	t := newTable(w, "kind", d.Kind+" ("+doctorKind(d.Kind)+")")
	if line > 1 {
		t.row("line", fmt.Sprint(line))
	}
	for _, row := range []struct {
		name  string
		bytes *proto.Bytes
	}{
		{"asked for", d.Tried}, {"card's total", d.Total}, {"free on the card", d.Free},
		{"used by tensors", d.Allocated}, {"held by PyTorch", d.Reserved}, {"allowed", d.Allowed},
	} {
		if row.bytes != nil {
			t.row(row.name, sizeInText(*row.bytes))
		}
	}
	if err := t.flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", wrap(d.Advice, 100))
	return err
}

// sizeInText is a size with two decimals, as exact as the texts print them.
func sizeInText(b proto.Bytes) string {
	if b >= proto.GiB {
		return fmt.Sprintf("%.2f GiB", float64(b)/float64(proto.GiB))
	}
	return fmt.Sprintf("%.2f MiB", float64(b)/float64(proto.MiB))
}

// doctorKind is a kind in words.
func doctorKind(kind string) string {
	words := map[string]string{
		outcome.KindOOM: "the card is full", outcome.KindAtCap: "refused by a cap, not by the card",
		outcome.KindOtherTenant: "other processes hold the card", outcome.KindFreeExceedsTried: "refused although the card had room",
		outcome.KindUnaccounted: "somebody unnamed holds the card", outcome.KindHostSpill: "GPU memory spills to the host",
		outcome.KindTruncated: "out of memory, sentence cut short", outcome.KindNoSize: "out of memory, no sizes",
		outcome.KindAsyncBackend: "the driver's own pool refused", outcome.KindNCCL: "NCCL could not get memory",
		outcome.KindXLA: "XLA could not get memory", outcome.KindTF: "TensorFlow could not get memory",
		outcome.KindMaybe: "may hide an out-of-memory", outcome.KindHostOOM: "the host's memory, not the GPU's",
		outcome.KindHostOOMKill: "killed for the host's memory", outcome.KindBogus: "the size asked for is no size",
		outcome.KindEnvFault: "the machine, its driver or a setting", outcome.KindNotOOM: "no allocation failed here",
	}
	return words[kind]
}

// wrap breaks a text at spaces.
func wrap(text string, width int) string {
	var out strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > width:
			out.WriteByte('\n')
			column = 0
		default:
			out.WriteByte(' ')
			column++
		}
		out.WriteString(word)
		column += len(word)
	}
	return out.String()
}
