package lint

import (
	"strconv"
	"testing"
)

// rule names one house rule.
type rule string

const (
	ruleLayer      rule = "layer"
	rulePackageDoc rule = "package doc"
	ruleNameDoc    rule = "exported names documented"
	ruleFileLines  rule = "file lines"
	ruleFuncLines  rule = "function lines"
	ruleFields     rule = "struct fields"
	ruleParameters rule = "parameters"
	ruleInit       rule = "no init"
	ruleGlobal     rule = "no mutable globals"
	ruleSleep      rule = "no sleep"
	ruleBackground rule = "no background context"
	ruleLog        rule = "log messages"
	ruleImport     rule = "forbidden import"
	rulePrint      rule = "no print"
	ruleErrorText  rule = "error text"
	ruleLeakCheck  rule = "leak check"
	ruleSkip       rule = "no silent skip"
	ruleName       rule = "package name"
	ruleText       rule = "text"
)

// exception is a finding that stays. at is the package or file, and after a
// space the name inside it; never a line number.
type exception struct {
	rule   rule
	at     string
	reason string
}

// exceptions are all of them. A line that excuses nothing fails.
var exceptions = []exception{
	{ruleFields, "proto CellReport", "a document: its fields are fixed, flat"},
	{ruleFields, "proto Evidence", "a document: all that was seen of one run, flat"},
	{ruleFields, "proto Result", "a document: identity, evidence and judgement of one run"},
	{ruleFields, "storage/registry Run", "a document: what the registry keeps of a result"},
	{ruleImport, "agent/gpu/gpu_test.go unsafe", "it holds the layout of the NVML structs to the C ones"},
	{ruleImport, "storage/trace/s3x/s3x_test.go log", "net/http takes no other logger for its server's errors"},
	{ruleBackground, "internal/natsserver/logger.go", "nats-server's logger interface passes no context"},
	{ruleBackground, "storage/raftnode/stream.go", "raft passes no context to Dial; this one ends with the stream"},
	{ruleLog, "storage/raftnode/logger.go", "it hands on the raft library's own messages"},
}

// finding is one place where a rule does not hold. where is for people.
type finding struct {
	at, where, what string
}

// judge fails the test for every finding without an exception, and for every
// exception of the rule without a finding.
func judge(t *testing.T, r rule, found []finding) {
	t.Helper()
	used := make(map[string]bool)
	for _, f := range found {
		if excused(r, f.at) {
			used[f.at] = true
			continue
		}
		t.Errorf("%s: %s: %s (key %q)", r, f.where, f.what, f.at)
	}
	for _, e := range exceptions {
		if e.rule == r && !used[e.at] {
			t.Errorf("%s: the exception for %q excuses nothing any more; remove it", r, e.at)
		}
	}
}

func excused(r rule, at string) bool {
	for _, e := range exceptions {
		if e.rule == r && e.at == at {
			return true
		}
	}
	return false
}

func TestExceptionsHaveReasons(t *testing.T) {
	seen := make(map[exception]bool)
	for _, e := range exceptions {
		if len(e.reason) < 10 {
			t.Errorf("%s, %s: an exception needs its reason", e.rule, e.at)
		}
		key := exception{rule: e.rule, at: e.at}
		if seen[key] {
			t.Errorf("%s, %s: listed twice", e.rule, e.at)
		}
		seen[key] = true
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
