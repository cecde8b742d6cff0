package child

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzProc: whatever the kernel's files hold (a process names itself), the fields
// that are read are those that stand there, and nothing ends the agent.
func FuzzProc(f *testing.F) {
	f.Add([]byte("7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 0 0\n"), []byte("low 0\nhigh 0\noom_kill 3\n"), []byte("0::/\n"))
	f.Add([]byte("7 (x) Z 1"), []byte("oom_kill x\n"), []byte("9:cpu,memory:/a/../..\n0::\n:\n"))
	root := f.TempDir()
	if err := os.WriteFile(filepath.Join(root, "memory.events"), []byte("oom_kill 5\n"), 0o600); err != nil {
		f.Fatal(err)
	}
	membership := filepath.Join(root, "cgroup")
	f.Fuzz(func(t *testing.T, stat, events, groups []byte) {
		if p, err := parseStat(7, stat); err == nil {
			state := "S"
			if p.zombie {
				state = "Z"
			}
			text := fmt.Sprintf("7 (x) %s %d%s %d 0\n", state, p.parent, strings.Repeat(" 0", 17), p.started)
			if again, err := parseStat(7, []byte(text)); err != nil || again != p {
				t.Errorf("%+v is written %q, and read as %+v, %v", p, text, again, err)
			}
		}
		if n, ok := oomKillField(events); ok {
			if again, ok := oomKillField(fmt.Appendf(nil, "low 0\noom_kill %d\n", n)); !ok || again != n {
				t.Errorf("%d kills are read as %d, %v", n, again, ok)
			}
		}
		if err := os.WriteFile(membership, groups, 0o600); err != nil {
			t.Fatal(err)
		}
		if n, err := oomKillsUnder(membership, root); err == nil && n != 5 && strings.Count(string(groups), "/") == 0 {
			t.Errorf("%d kills of a group without a path", n)
		}
	})
}
