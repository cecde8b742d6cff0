package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
)

// formatVersion is written to every file; a file without one is read as well.
const formatVersion = 1

// Keys of the file's metadata. Cell and stack are written twice: whole as JSON,
// and flat under the keys that plain recordings use, so that one query reads
// both. Where they differ, the JSON holds.
const (
	keyVersion  = "fleet.trace.version"
	keyCell     = "cell"
	keyStack    = "stack"
	keyOrigin   = "origin"
	keySettings = "allocator_settings"
	keyTrunc    = "truncated"

	keyGPU          = "gpu"
	keyDriver       = "driver"
	keyTorch        = "torch"
	keyTransformers = "transformers"
	keySeqLen       = "seq_len"
	keyBatch        = "batch"
	keyChunk        = "chunk_size"
	keyModel        = "model"
	keyWeights      = "weights"
	keyRecycles     = "recycles"
	keyDtype        = "dtype"
)

// amounts maps the byte-valued keys to the fields of m.
func (m *Meta) amounts() map[string]*proto.Bytes {
	return map[string]*proto.Bytes{
		"peak_allocated_bytes": &m.PeakAllocated,
		"peak_reserved_bytes":  &m.PeakReserved,
		"process_peak_bytes":   &m.ProcessPeak,
		"context_bytes":        &m.Context,
		"weights_bytes":        &m.Weights,
		"gpu_total_bytes":      &m.DeviceTotal,
	}
}

// keyValues is m as the metadata of a file; what is not known is left out.
func (m Meta) keyValues() (map[string]string, error) {
	kv := maps.Clone(m.Extra)
	if kv == nil {
		kv = map[string]string{}
	}
	cell, errCell := json.Marshal(m.Cell)
	stack, errStack := json.Marshal(m.Stack)
	settings, errSettings := json.Marshal(m.Settings)
	for _, err := range []error{errCell, errStack, errSettings} {
		if err != nil {
			return nil, fmt.Errorf("encode trace metadata: %w", err)
		}
	}
	kv[keyVersion] = strconv.Itoa(formatVersion)
	kv[keyCell] = string(cell)
	kv[keyStack] = string(stack)
	flat := map[string]string{
		keyOrigin: string(m.Origin), keyGPU: m.Stack.GPU, keyDriver: m.Stack.Driver,
		keyTorch: m.Stack.Torch, keyTransformers: m.Stack.Transformers,
	}
	if len(m.Settings) > 0 {
		flat[keySettings] = string(settings)
	}
	if m.Truncated {
		flat[keyTrunc] = "true"
	}
	if m.Cell.SeqLen > 0 {
		flat[keySeqLen] = strconv.Itoa(m.Cell.SeqLen)
		flat[keyBatch] = strconv.Itoa(m.Cell.Batch)
		flat[keyChunk] = strconv.Itoa(m.Cell.ChunkSize)
		flat[keyModel] = modelOf(m.Cell.Workload)
	}
	for key, amount := range m.amounts() {
		if *amount != 0 {
			flat[key] = strconv.FormatInt(int64(*amount), 10)
		}
	}
	for key, value := range flat {
		if value != "" {
			kv[key] = value
		}
	}
	return kv, nil
}

func modelOf(w proto.Workload) string {
	if model := w.Params["model"]; model != "" {
		return model
	}
	return w.Name
}

// metaOf reads the metadata of a file. It empties kv of every key that it
// understands; what remains becomes Extra.
func metaOf(kv map[string]string) (Meta, error) {
	take := func(key string) string {
		value := kv[key]
		delete(kv, key)
		return strings.ToValidUTF8(value, "\ufffd") // as JSON has it, which some of them go into
	}
	if v := take(keyVersion); v != "" && v != strconv.Itoa(formatVersion) {
		return Meta{}, fmt.Errorf("trace format version %.40q, this build reads %d", v, formatVersion)
	}
	var m Meta
	for key, amount := range m.amounts() {
		n, err := count(key, take(key))
		if err != nil {
			return Meta{}, err
		}
		*amount = proto.Bytes(n)
	}
	m.Truncated = take(keyTrunc) == "true"
	if text := take(keyOrigin); text != "" {
		origin, err := proto.ParseOrigin(text)
		if err != nil {
			return Meta{}, err
		}
		m.Origin = origin
	}
	var err error
	if m.Settings, err = settingsOf(take(keySettings)); err != nil {
		return Meta{}, err
	}
	cell, stack := take(keyCell), take(keyStack)
	if m.Cell, m.Stack, err = flatCell(take); err != nil {
		return Meta{}, err
	}
	if cell != "" {
		m.Cell = proto.Cell{}
		if err := json.Unmarshal([]byte(cell), &m.Cell); err != nil {
			return Meta{}, fmt.Errorf("metadata key %s: %.300w", keyCell, err)
		}
	}
	if stack != "" {
		m.Stack = proto.Stack{}
		if err := json.Unmarshal([]byte(stack), &m.Stack); err != nil {
			return Meta{}, fmt.Errorf("metadata key %s: %.300w", keyStack, err)
		}
	}
	if len(kv) > 0 {
		m.Extra = kv
	}
	return m, nil
}

// flatCell builds cell and stack from the flat keys of a plain recording. An
// ESMFold model becomes the workload esmfold with its parameters as the matrix
// writes them; any other model is a workload of its own name.
func flatCell(take func(string) string) (proto.Cell, proto.Stack, error) {
	stack := proto.Stack{GPU: take(keyGPU), Driver: take(keyDriver), Torch: take(keyTorch), Transformers: take(keyTransformers)}
	cell := proto.Cell{GPU: stack.GPU, Driver: stack.Driver}
	for _, axis := range []struct {
		key   string
		value *int
	}{{keySeqLen, &cell.SeqLen}, {keyBatch, &cell.Batch}, {keyChunk, &cell.ChunkSize}} {
		n, err := count(axis.key, take(axis.key))
		if err != nil {
			return cell, stack, err
		}
		*axis.value = int(n)
	}
	params := map[string]string{}
	model := take(keyModel)
	cell.Workload.Name = model
	if strings.HasPrefix(model, "esmfold") {
		cell.Workload.Name = "esmfold"
		params[keyModel] = model
	}
	for _, key := range []string{keyWeights, keyRecycles} {
		if value := take(key); value != "" {
			params[key] = value
		}
	}
	for pair := range strings.SplitSeq(take(keyDtype), ",") { // stem=bfloat16,trunk=float32
		if part, dtype, ok := strings.Cut(pair, "="); ok {
			params[part] = dtype
		}
	}
	if len(params) > 0 {
		cell.Workload.Params = params
	}
	return cell, stack, nil
}

// count reads a number that cannot be negative; empty is 0.
func count(key, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("metadata key %s: %.40q is not a number of 0 or more", key, text)
	}
	return n, nil
}

// settingsOf reads the allocator's settings: a JSON object. Text stays text,
// any other value is kept as compact JSON.
func settingsOf(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &values); err != nil {
		return nil, fmt.Errorf("metadata key %s: %.300w", keySettings, err)
	}
	settings := make(map[string]string, len(values))
	for key, raw := range values {
		var s string
		if json.Unmarshal(raw, &s) == nil && string(raw) != "null" {
			settings[key] = s
			continue
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil {
			return nil, fmt.Errorf("metadata key %s, setting %.80q: %.300w", keySettings, key, err)
		}
		settings[key] = compact.String()
	}
	return settings, nil
}
