package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Validate reports whether c can be applied by this build: a known version and
// exactly one command. What a command asks for is judged by Apply.
func (c Command) Validate() error {
	if c.Version < 1 || c.Version > CommandVersion {
		return fmt.Errorf("command version %d, this build applies 1 to %d: upgrade it", c.Version, CommandVersion)
	}
	set := 0
	for _, present := range []bool{c.AddSweep != nil, c.CancelSweep != nil, c.Issue != nil, c.TakeResult != nil,
		c.SetPrediction != nil, c.SetProgram != nil, c.Settle != nil, c.SetCoefficients != nil, c.SetMember != nil, c.SetVerdict != nil} {
		if present {
			set++
		}
	}
	if set != 1 {
		return fmt.Errorf("a command holds exactly one order, this one holds %d", set)
	}
	return nil
}

// EncodeCommand is the command as it goes into the log: JSON on one line.
// Numbers that JSON has no form for (NaN, infinities) are an error, so they
// never reach a Machine.
func EncodeCommand(c Command) ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("encode command: %w", err)
	}
	data, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode command: %w", err)
	}
	return data, nil
}

// DecodeCommand reads what EncodeCommand wrote. An unknown field, an unknown
// version and anything after the command are errors: a build that would leave
// out a part of a command must stop, not come to another state than the rest.
func DecodeCommand(data []byte) (Command, error) {
	var c Command
	if err := decodeStrict(data, &c); err != nil {
		return Command{}, fmt.Errorf("decode command: %.300w", err)
	}
	if err := c.Validate(); err != nil {
		return Command{}, fmt.Errorf("decode command: %w", err)
	}
	return c, nil
}

// decodeStrict reads exactly one JSON value with no field that into lacks.
func decodeStrict(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more data after the value")
	}
	return nil
}
