package api

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzTokenFile: a token file is read whole or refused whole, and what was read
// means the same when it is written again.
func FuzzTokenFile(f *testing.F) {
	_, forever, err := NewToken("ci", RoleWrite, time.Time{})
	if err != nil {
		f.Fatal(err)
	}
	_, ending, err := NewToken("a.b-c_d", RoleAdmin, time.Unix(2_000_000_000, 0))
	if err != nil {
		f.Fatal(err)
	}
	f.Add("# who may ask\n\n" + forever.Line() + "\n" + ending.Line() + "\r\n")
	f.Add("read x never sha256:")
	f.Fuzz(func(t *testing.T, text string) {
		holders, err := parseHolders(text)
		if err != nil {
			return
		}
		var lines strings.Builder
		for _, h := range holders {
			lines.WriteString(h.Line() + "\n")
		}
		again, err := parseHolders(lines.String())
		if err != nil || !slices.EqualFunc(holders, again, func(a, b Holder) bool {
			return a.Name == b.Name && a.Role == b.Role && a.Hash == b.Hash && a.Expires.Equal(b.Expires)
		}) {
			t.Errorf("written again: %+v, %v\nwas %+v", again, err, holders)
		}
	})
}
