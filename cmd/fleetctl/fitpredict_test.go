package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

// TestPredictAsksWhichGroup: with several groups the answer is a list of the
// flags that tell them apart, and those flags work.
func TestPredictAsksWhichGroup(t *testing.T) {
	_, file, _ := fitRuns(t, runsFile)
	stdout, stderr, code := fleetctl(t, "fit", "predict", file, "--seq-len", "300")
	if code != exitUsage || stdout != "" || !strings.Contains(stderr, "4 groups are as the flags say; choose one with\n") || strings.Contains(stderr, "--origin") {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
	lines := strings.Split(strings.TrimSpace(stderr), "\n")[1:]
	if len(lines) != 4 {
		t.Fatalf("%q", lines)
	}
	values := map[int64]bool{}
	for _, line := range lines {
		d := forecastOf(t, file, append([]string{"--seq-len", "300", "--extrapolate"}, strings.Fields(line)...)...)
		values[d.Process.Value] = true
	}
	if len(values) != 4 {
		t.Errorf("four groups predict %v", values)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--chunk-size", "32"}, "no group is as the flags say; the document has\n"},
		{[]string{"--env", "X"}, "KEY=VALUE"},
		{[]string{"--env", "A=1", "--env", "A=2"}, "twice"},
		{[]string{"--chunk-size", "64", "--batch", "2"}, "length 300 at batch 2 is outside what was fitted (lengths 128 to 768, batches 1 to 1); --extrapolate"},
		{[]string{"--batch", "0"}, "at least 1"},
	} {
		if stdout, stderr, code := fleetctl(t, append([]string{"fit", "predict", file, "--seq-len", "300"}, c.args...)...); code != exitUsage || stdout != "" || !strings.Contains(stderr, c.says) {
			t.Errorf("%v: exit %d, %s%s", c.args, code, stdout, stderr)
		}
	}
	if _, stderr, code := fleetctl(t, "fit", "predict", file); code != exitUsage || !strings.Contains(stderr, "seq-len") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// TestPredictReadsOtherDocuments: the same coefficients inside a sweep's status
// and inside the API's answer predict the same.
func TestPredictReadsOtherDocuments(t *testing.T) {
	all, file, _ := fitRuns(t, articleFile)
	want := forecastOf(t, file, "--seq-len", "300")
	for name, document := range map[string]any{
		"status": proto.Report{Matrix: proto.MatrixRef{Name: "m", ID: "m-1"}, State: "settled", Coefficients: all},
		"api":    map[string]any{"coefficients": all, "applied_index": 7, "role": "leader"},
	} {
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		if got := forecastOf(t, writeFile(t, name+".json", string(text)), "--seq-len", "300"); *got.Reserved != *want.Reserved || *got.Process != *want.Process {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestPredictFromTermsAlone: without the fit's own document the values stay, and
// the intervals get wider, never narrower.
func TestPredictFromTermsAlone(t *testing.T) {
	all, file, _ := fitRuns(t, articleFile)
	for i := range all {
		all[i].Model = nil
	}
	text, err := json.Marshal(coefficientsDocument{Coefficients: all[:2]})
	if err != nil {
		t.Fatal(err)
	}
	own, terms := forecastOf(t, file, "--seq-len", "300"), forecastOf(t, writeFile(t, "terms.json", string(text)), "--seq-len", "300")
	if terms.Process != nil || terms.Reserved.Value != own.Reserved.Value || terms.Reserved.Hi < own.Reserved.Hi {
		t.Errorf("%+v, own %+v", terms.Reserved, own.Reserved)
	}
}

func TestPredictRefusesDocuments(t *testing.T) {
	_, file, _ := fitRuns(t, articleFile)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(old, new string) string {
		text := strings.Replace(string(good), old, new, 1)
		if text == string(good) {
			t.Fatalf("no %q in the document", old)
		}
		return text
	}
	for name, c := range map[string]struct{ text, says string }{
		"no JSON":         {"seq_len,batch", "no document with coefficients"},
		"empty":           {"", "no document with coefficients"},
		"none":            {`{"coefficients":[]}`, "holds no coefficients"},
		"other document":  {`{"cells":[]}`, "holds no coefficients"},
		"unknown term":    {edit(`"name": "weights"`, `"name": "ballast"`), `disagree with their model`},
		"unknown alone":   {`{"coefficients":[{"target":"reserved","terms":[{"name":"ballast"}],"domain":{"seq_len":[1,9],"batch":[1,1]}}]}`, `a term "ballast"`},
		"edited term":     {edit(`"lo": `, `"lo": 1`), "disagree with their model"},
		"damaged model":   {edit(`"cov": [`, `"cov": [[1],`), "rows of covariance"},
		"unknown target":  {edit(`"target": "allocated"`, `"target": "used"`), "used"},
		"one twice":       {edit(`"target": "reserved"`, `"target": "allocated"`), "allocated coefficients"},
		"terms without":   {`{"coefficients":[{"target":"reserved","terms":[]}]}`, "no terms"},
		"number for text": {`{"coefficients":[{"target":5}]}`, "no document with coefficients"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := fleetctl(t, "fit", "predict", writeFile(t, "c.json", c.text), "--seq-len", "300", "--json")
			if code != exitUsage || stdout != "" || !strings.Contains(stderr, c.says) {
				t.Errorf("exit %d, %s%s", code, stdout, stderr)
			}
		})
	}
}

func TestPredictBeyondTheDomain(t *testing.T) {
	_, file, _ := fitRuns(t, articleFile)
	stdout, stderr, code := fleetctl(t, "fit", "predict", file, "--seq-len", "1024")
	if code != exitUsage || stdout != "" || !strings.Contains(stderr, "lengths 128 to 512, batches 1 to 1") {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
	stdout, stderr, code = fleetctl(t, "fit", "predict", file, "--seq-len", "1024", "--extrapolate")
	if code != 0 || !strings.Contains(stderr, "extrapolated: length 1024") || !strings.Contains(stdout, "reserved") {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
	if d := forecastOf(t, file, "--seq-len", "9000000000000000000", "--batch", "9000000000000000000", "--extrapolate"); d.InDomain || d.Process.Value != 1<<62 {
		t.Errorf("%+v", d.Process)
	}
}
