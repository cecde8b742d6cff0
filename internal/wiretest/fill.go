package wiretest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"
)

// Words are the values of types that have a closed set of them.
type Words map[reflect.Type]string

// Word adds the value of a type.
func Word[T ~string](w Words, value T) { w[reflect.TypeFor[T]()] = string(value) }

// Full is a value with every exported field set, each to another value where the
// type leaves a choice, the same at every call.
func Full[T any](words Words) T {
	var v T
	(&filler{words: words}).fill(reflect.ValueOf(&v).Elem(), 0)
	return v
}

// JSON is Full as a document.
func JSON[T any](words Words) []byte {
	text, err := json.MarshalIndent(Full[T](words), "", " ")
	if err != nil {
		panic(fmt.Sprintf("wiretest: %T does not marshal: %v", *new(T), err))
	}
	return append(text, '\n')
}

// Lenient is a document that passes over what it does not know.
func Lenient[T any](name string, words Words) Document {
	return Document{Name: name, Full: JSON[T](words), Again: func(text []byte) ([]byte, error) {
		var v T
		if err := json.Unmarshal(text, &v); err != nil {
			return nil, err
		}
		return json.Marshal(v)
	}}
}

type filler struct {
	words Words
	n     int64
}

const deepest = 16 // types that hold themselves end there

func (f *filler) fill(v reflect.Value, depth int) {
	f.n++
	if !v.CanSet() || depth > deepest {
		return
	}
	if word, ok := f.words[v.Type()]; ok {
		v.SetString(word)
		return
	}
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, int(f.n%60), 0, time.UTC)))
		return
	case json.RawMessage:
		v.SetBytes([]byte(`{"opaque":true}`))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(f.n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.n))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(f.n) + 0.5)
	case reflect.String:
		v.SetString(fmt.Sprintf("text-%d", f.n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(v.Index(0), depth+1)
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i), depth+1)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key, depth+1)
		f.fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i), depth+1)
		}
	case reflect.Interface:
		v.Set(reflect.ValueOf("anything"))
	}
}
