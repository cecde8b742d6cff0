package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/agent/outcome"
)

const messagesFile = "../../agent/outcome/testdata/oom_messages.jsonl"

// article is the message that brought a reader here: 128 MiB refused with 15 GiB free.
const article = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 128.00 MiB (GPU 0; 31.86 GiB total capacity; " +
	"16.45 GiB already allocated; 14.95 GiB free; 16.95 GiB reserved in total by PyTorch)"

// doctor runs the command over a text, from a file and from stdin, which must agree.
func doctor(t *testing.T, text string, flags ...string) (stdout, stderr string, code int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "train.log")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code = fleetctl(t, append([]string{"doctor", file}, flags...)...)
	var out, errs bytes.Buffer
	again := run(t.Context(), append([]string{"doctor", "-"}, flags...), streams{in: strings.NewReader(text), out: &out, err: &errs})
	if again != code || out.String() != stdout {
		t.Errorf("stdin: exit %d, %s; file: exit %d, %s", again, out.String(), code, stdout)
	}
	return stdout, stderr, code
}

// TestDoctorOnEveryMessage: each text of the corpus gives its document, exactly
// the fields of docs/cli.md, with null where the text holds no number.
func TestDoctorOnEveryMessage(t *testing.T) {
	f, err := os.Open(messagesFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for s := bufio.NewScanner(f); s.Scan(); n++ {
		var sample map[string]any
		if err := json.Unmarshal(s.Bytes(), &sample); err != nil {
			t.Fatal(err)
		}
		stdout, stderr, code := doctor(t, sample["text"].(string), "--json")
		var got map[string]any
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 || stderr != "" {
			t.Fatalf("%v: exit %d, %v, %s", sample["id"], code, err, stderr)
		}
		if advice, _ := got["advice"].(string); len(advice) < 40 {
			t.Errorf("%v: advice %q", sample["id"], advice)
		}
		delete(got, "advice")
		for _, other := range []string{"id", "source", "text"} {
			delete(sample, other)
		}
		if !reflect.DeepEqual(got, sample) {
			t.Errorf("got %v, want %v", got, sample)
		}
	}
	if n != 62 {
		t.Errorf("%d messages", n)
	}
}

// TestDoctorOnTheArticle: 15 GiB free and yet refused is a quota, not the card.
func TestDoctorOnTheArticle(t *testing.T) {
	stdout, _, code := doctor(t, article, "--json")
	var d doctorDocument
	if err := json.Unmarshal([]byte(stdout), &d); err != nil || code != 0 {
		t.Fatal(code, err)
	}
	if d.Kind != outcome.KindFreeExceedsTried || *d.Tried != 128<<20 || d.Allowed != nil || !strings.Contains(d.Advice, "quota") {
		t.Errorf("%s", stdout)
	}
	people, _, _ := doctor(t, article)
	for _, part := range []string{"128.00 MiB", "14.95 GiB", "31.86 GiB", "although the card had room", "quota below the card's size"} {
		if !strings.Contains(strings.ReplaceAll(people, "\n", " "), part) {
			t.Errorf("no %q in\n%s", part, people)
		}
	}
}

func TestDoctorOnLogs(t *testing.T) {
	pad := strings.Repeat("epoch 1 of 9, loss 0.31, 3.2 it/s, "+strings.Repeat("more words ", 30)+"\n", 3000)
	second := strings.ReplaceAll(article, "128.00 MiB", "256.00 MiB")
	stdout, stderr, code := doctor(t, article+"\n"+pad+second+"\n"+pad, "--json")
	if code != 0 || !strings.Contains(stdout, `"tried_bytes": 268435456`) {
		t.Errorf("exit %d, %s", code, stdout)
	}
	if !strings.Contains(stderr, "2 refusals") || !strings.Contains(stderr, "line 3002") || !strings.Contains(stderr, "first is in line 1, when 128 MiB") {
		t.Errorf("stderr %q", stderr)
	}
	if stdout, stderr, code := doctor(t, pad); code != 0 || stderr != "" || !strings.HasPrefix(stdout, "kind  not_oom (no allocation failed here)\n") {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
}

func TestDoctorRefuses(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	garbage := make([]byte, 100_000)
	for i := range garbage {
		garbage[i] = byte(rng.Uint32())
	}
	for name, c := range map[string]struct{ text, says string }{
		"empty":   {"", "is empty: give the text"},
		"garbage": {string(garbage), "is no text"},
	} {
		if stdout, stderr, code := doctor(t, c.text, "--json"); code != exitUsage || stdout != "" || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: exit %d, %q, %q", name, code, stdout, stderr)
		}
	}
	for _, args := range [][]string{{"doctor", "nowhere.log"}, {"doctor", t.TempDir()}, {"doctor"}, {"doctor", "a", "b"}} {
		if stdout, stderr, code := fleetctl(t, args...); code != exitUsage || stdout != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit %d, %q, %q", args, code, stdout, stderr)
		}
	}
	// What is found in garbage counts: a log with some binary output is a log.
	if stdout, _, code := doctor(t, string(garbage)+"\n"+article+"\n"+string(garbage), "--json"); code != 0 || !strings.Contains(stdout, outcome.KindFreeExceedsTried) {
		t.Errorf("exit %d, %s", code, stdout)
	}
}

// TestDoctorKnowsEveryKind: a kind without words would be an empty bracket.
func TestDoctorKnowsEveryKind(t *testing.T) {
	for _, kind := range []string{outcome.KindOOM, outcome.KindAtCap, outcome.KindOtherTenant, outcome.KindFreeExceedsTried, outcome.KindUnaccounted,
		outcome.KindHostSpill, outcome.KindTruncated, outcome.KindNoSize, outcome.KindAsyncBackend, outcome.KindNCCL, outcome.KindXLA, outcome.KindTF,
		outcome.KindMaybe, outcome.KindHostOOM, outcome.KindHostOOMKill, outcome.KindBogus, outcome.KindEnvFault, outcome.KindNotOOM} {
		if doctorKind(kind) == "" {
			t.Errorf("%s has no words", kind)
		}
	}
}
