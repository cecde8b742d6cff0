package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestAPITranscripts runs every block of docs/api.md that is asked of a fleet:
// what curl would do, and the Python example as it stands there.
func TestAPITranscripts(t *testing.T) {
	text, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("../..")
	serveWorld(t, "agent/sim/traces")
	blocks := consoleBlocks("docs/api.md", strings.ReplaceAll(string(text), "```console fleet\n", "```console\n"))
	if len(blocks) < 4 {
		t.Fatalf("only %d blocks", len(blocks))
	}
	for _, steps := range blocks {
		for _, s := range steps {
			s.check(t, asCurl(t, s))
		}
	}
	example := regexp.MustCompile("(?s)```python\n(.*?)```\n\nprints\n\n```\n(.*?)```\n").FindStringSubmatch(string(text))
	if example == nil {
		t.Fatal("docs/api.md has no example in Python with what it prints")
	}
	file := filepath.Join(t.TempDir(), "example.py")
	if err := os.WriteFile(file, []byte(example[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "python3", file)
	cmd.Env = append(os.Environ(), "PYTHONPATH=deploy/python", "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the example in Python (which needs python3 here): %v\n%s", err, out)
	}
	if !matches(strings.Split(example[2], "\n"), string(out)) {
		t.Errorf("the example in Python prints\n%s\nand not\n%s", out, example[2])
	}
}

// asCurl does what curl does with -s, and with -i, which shows the headers too.
func asCurl(t *testing.T, s step) string {
	t.Helper()
	words := shellWords(os.ExpandEnv(s.command))
	var headers bool
	var url string
	for _, w := range words[1:] {
		switch {
		case w == "-s":
		case w == "-i":
			headers = true
		case strings.HasPrefix(w, "http://") && url == "":
			url = w
		default:
			t.Fatalf("%s: %q is not known here", s.at, w)
		}
	}
	if words[0] != "curl" {
		t.Fatalf("%s: %q cannot be run here", s.at, s.command)
	}
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !headers {
		return string(text)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s %s\n", answer.Proto, answer.Status)
	answer.Header.Write(&out)
	return strings.ReplaceAll(out.String(), "\r\n", "\n") + "\n" + string(text)
}
