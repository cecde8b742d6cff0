package child

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// oomKills reads how many processes of our control group the kernel has killed
// for want of host memory. Exit code 137 alone does not tell: an operator's kill
// and our own timeout look the same.
func oomKills() (int64, error) { return oomKillsUnder("/proc/self/cgroup", "/sys/fs/cgroup") }

func oomKillsUnder(membership, root string) (int64, error) {
	groups, err := os.ReadFile(membership)
	if err != nil {
		return 0, fmt.Errorf("read control group: %w", err)
	}
	var candidates []string
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch path := parts[2]; {
		case parts[0] == "0" && parts[1] == "": // version 2
			// Inside a container the path may be outside the mount: the
			// mount's root is the container's own group then.
			candidates = append(candidates, filepath.Join(root, path, "memory.events"), filepath.Join(root, "memory.events"))
		case hasController(parts[1], "memory"): // version 1
			candidates = append(candidates, filepath.Join(root, "memory", path, "memory.oom_control"), filepath.Join(root, "memory", "memory.oom_control"))
		}
	}
	for _, file := range candidates {
		if text, err := os.ReadFile(file); err == nil {
			if n, ok := oomKillField(text); ok {
				return n, nil
			}
		}
	}
	return 0, fmt.Errorf("no oom_kill counter in %s", strings.Join(candidates, ", "))
}

func hasController(list, name string) bool {
	for controller := range strings.SplitSeq(list, ",") {
		if controller == name {
			return true
		}
	}
	return false
}

func oomKillField(text []byte) (int64, bool) {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "oom_kill "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
