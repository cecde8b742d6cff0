package registry

import (
	"errors"
	"strings"
	"testing"
)

// TestGate: nothing is proposed that a member's build would stop at.
func TestGate(t *testing.T) {
	old, current, silent := Member{ID: "b", CommandVersion: 1}, Member{ID: "a", CommandVersion: 2}, Member{ID: "c"}
	for name, tc := range map[string]struct {
		needs   int
		members map[string]Member
		blocks  string
	}{
		"first version, all builds":    {1, map[string]Member{"a": current, "b": old, "c": silent}, ""},
		"second version, all upgraded": {2, map[string]Member{"a": current}, ""},
		"second version, one old":      {2, map[string]Member{"a": current, "b": old}, "b applies up to 1"},
		"second version, one silent":   {2, map[string]Member{"a": current, "c": silent}, "c applies up to 1"},
		"nobody has announced":         {1, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			version, err := gate(tc.needs, tc.members)
			if tc.blocks == "" && (err != nil || version != tc.needs) {
				t.Errorf("version %d, %v", version, err)
			}
			if tc.blocks != "" && (!errors.Is(err, ErrOldMember) || !strings.Contains(err.Error(), tc.blocks)) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestOlderBuildStops: a build that meets a command of a newer one stops with a
// sentence; it neither guesses nor goes on without it.
func TestOlderBuildStops(t *testing.T) {
	for name, entry := range map[string]string{
		"version":  `{"v":2,"set_member":{"member":{"id":"a","api":"http://a:1"}}}`,
		"order":    `{"v":1,"forget_cell":{"id":"x"}}`,
		"field":    `{"v":1,"cancel_sweep":{"id":"x","why":"new"}}`,
		"trailing": `{"v":1,"cancel_sweep":{"id":"x"}}{}`,
	} {
		t.Run(name, func(t *testing.T) {
			if c, err := DecodeCommand([]byte(entry)); err == nil {
				t.Errorf("it is taken as %+v", c)
			}
		})
	}
	m := New()
	defer func() {
		if why, _ := recover().(string); !strings.Contains(why, "upgrade this node") || m.View().AppliedIndex != 0 {
			t.Errorf("it ends with %q at index %d", why, m.View().AppliedIndex)
		}
	}()
	m.Apply(1, m.View().AppliedTime, Command{Version: CommandVersion + 1, CancelSweep: &CancelSweep{ID: "x"}})
	t.Error("an unknown version was applied")
}
