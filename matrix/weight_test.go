package matrix_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/matrix"
)

// TestBombs: small files that ask for much end at once, with a sentence.
func TestBombs(t *testing.T) {
	list := func(n int, form string) string {
		var items []string
		for i := range n {
			if strings.Contains(form, "%") {
				items = append(items, fmt.Sprintf(form, i+1))
			} else {
				items = append(items, form)
			}
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	file := func(workload, axes, rest string) string {
		return "apiVersion: oomfleet/v1\nname: x\nworkload: " + workload + "\ntarget: {gpu: NVIDIA H200}\naxes: {driver: ['580.159.04'], " + axes + "}\n" + rest
	}
	const esmfold = "{name: esmfold}"
	var params, laughs strings.Builder
	for i := range 64 {
		fmt.Fprintf(&params, "p%d: %s, ", i, strings.Repeat("x", 500))
	}
	for i := range 9 {
		fmt.Fprintf(&laughs, "  - &a%d {seq_len: [*a%d, *a%d, *a%d]}\n", i+1, i, i, i)
	}
	for name, c := range map[string]struct{ source, says string }{
		"parameters times cells": {file("{name: 'a:b', params: {"+params.String()+"}}", "batch: [1, 2], seq_len: "+list(5000, "%d"), ""), "MiB are kept"},
		"variables times cells":  {file(esmfold, "batch: [1, 2], seq_len: "+list(5000, "%d")+", env: [{A: "+strings.Repeat("y", 4000)+", B: "+strings.Repeat("y", 4000)+"}]", ""), "MiB are kept"},
		"laughs":                 {file(esmfold, "batch: [1], seq_len: &a0 [1, 2]", "include:\n"+laughs.String()), "is a list"},
		"itself":                 {file(esmfold, "batch: [1], seq_len: &s [1, *s]", ""), "is a list"},
		"deep":                   {file(esmfold, "batch: [1], seq_len: "+strings.Repeat("[", 90_000)+strings.Repeat("]", 90_000), ""), "not YAML"},
		"wide":                   {file(esmfold, "batch: [1, 2, 3, 4], seq_len: "+list(20_000, "%d"), ""), "cells"},
		"rules":                  {file(esmfold, "batch: [1, 2], seq_len: "+list(3000, "%d"), "exclude:\n  - &r {seq_len: "+list(3000, "%d")+"}\n"+strings.Repeat("  - *r\n", 20_000)), "rules; at most"},
		"large":                  {file(esmfold, "batch: [1], seq_len: [1]", strings.Repeat("# x\n", matrix.MaxSource)), "bytes; at most"},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			_, err := matrix.Expand([]byte(c.source), matrix.Options{})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				text := fmt.Sprint(err)
				t.Errorf("got %.300s, want %q", text, c.says)
			}
			if took := time.Since(begin); took > 30*time.Second { // each takes far less than a second
				t.Errorf("took %s", took)
			}
		})
	}
	many, err := matrix.Expand([]byte(file(esmfold, "batch: [1, 2], seq_len: "+list(5000, "%d"), "")), matrix.Options{})
	if err != nil || len(many.Cells) != 10_000 {
		t.Errorf("10,000 ordinary cells: %v", err)
	}
}
