package main

import (
	"fmt"
	"io"
	"os"
)

// input opens a file that a command is given, or stdin for "-", and says how to
// call it. A file that cannot be opened is wrong input; what names it in the
// error. The caller closes it.
func (a *app) input(path, what string) (in io.ReadCloser, name string, err error) {
	if path == "-" {
		return io.NopCloser(a.in), "stdin", nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, path, wrongInput(fmt.Errorf("open %s: %w", what, err))
	}
	return file, path, nil
}
