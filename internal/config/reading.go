package config

import (
	"errors"
	"io"
	"regexp"
	"strings"
)

// readable says what is wrong with a text in words of the file, where the YAML
// package has those of this program's types.
func readable(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the file is empty; deploy/fleet.yaml is one to start from")
	}
	text := err.Error()
	for _, w := range []struct{ found, said string }{
		{`^yaml: (construct errors: )?`, ``},
		{`field (\S+) not found in type config\.\w+`, `there is no key "$1" here`},
		{`cannot construct !!seq into (\S+)`, `a list does not fit here, $1`},
		{`cannot construct !!map into (\S+)`, `a mapping does not fit here, $1`},
		{"cannot construct !!\\w+ `([^`]*)` into (\\S+)", `"$1" does not fit here, $2`},
		{`, time\.Duration\b`, `; a time is a number with a unit, like 30s or 5m`},
		{`, bool\b`, `; it takes true or false`},
		{`, \[\]\S+?(;|$)`, `; it takes a list$1`},
		{`, (string|int)\b`, `; it takes a single value`},
		{`, config\.\w+`, `; it takes keys with values`},
	} {
		text = regexp.MustCompile(w.found).ReplaceAllString(text, w.said)
	}
	return errors.New(strings.ReplaceAll(text, "; line ", "\nline "))
}
