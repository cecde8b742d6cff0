package main

import (
	"os"
	"strings"
	"testing"
)

// TestReadmeTranscripts runs every transcript of README.md: each line in a
// ```console block that begins with "$ fleetctl ", from the repository's root.
// A line of dots in the expected output stands for the rest.
func TestReadmeTranscripts(t *testing.T) {
	t.Chdir("../..")
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, block := range strings.Split(string(text), "```console\n")[1:] {
		block, _, closed := strings.Cut(block, "```")
		if !closed {
			t.Fatal("a console block is not closed")
		}
		for _, step := range strings.Split("\n"+block, "\n$ fleetctl ")[1:] {
			command, want, _ := strings.Cut(step, "\n")
			ran++
			t.Run(command, func(t *testing.T) { runTranscript(t, command, strings.TrimRight(want, "\n")) })
		}
	}
	if ran < 3 {
		t.Errorf("only %d transcripts were found", ran)
	}
}

func runTranscript(t *testing.T, command, want string) {
	stdout, stderr, code := fleetctl(t, strings.Fields(command)...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	got := strings.Split(strings.TrimRight(stdout, "\n"), "\n")
	for i, line := range strings.Split(want, "\n") {
		if line == "..." {
			return
		}
		if i >= len(got) || strings.TrimRight(got[i], " ") != strings.TrimRight(line, " ") {
			t.Fatalf("line %d: the README says %q; the command printed\n%s", i+1, line, stdout)
		}
	}
	if n := len(strings.Split(want, "\n")); n != len(got) {
		t.Errorf("the README shows %d lines, the command printed %d:\n%s", n, len(got), stdout)
	}
}
