package durable

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	strict "github.com/go-json-experiment/json"
)

// ErrSum: the file is whole, and not what was written. What it says may be of use for
// keeping things closed, and for nothing else.
var ErrSum = errors.New("its checksum is wrong: something else than tier-agent has changed it, or the disk has")

// Version is the one that files have which are written here. Every file says it in the field
// "version"; one that says a later version says in "writer" which tier-agent wrote it.
const Version = 1

// ReadJSON clears what is left beside the file at path, and decodes the file into what into
// points to. It is an error for the file to have more than most bytes, to be of another
// version, to have keys that are not known, or anything but one JSON value; so is a key that
// stands twice, or in another case. With ErrSum into is what the file says all the same. A
// file that is not there is fs.ErrNotExist, and nothing else is.
//
// Before the first write a file without a checksum, as earlier versions have written it, is
// kept beside as *.old.
func ReadJSON(path string, most int64, into any) error {
	Clear(path)
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return err
	}
	if int64(len(data)) > most {
		return fmt.Errorf("more than %d bytes", most)
	}
	var head struct {
		Version int    `json:"version"`
		Writer  string `json:"writer"`
	}
	if err := strict.Unmarshal(data, &head); err == nil && head.Version > Version {
		return fmt.Errorf("version %d, written by tier-agent %.40q; this one reads %d", head.Version, head.Writer, Version)
	}
	if err := strict.Unmarshal(data, into, strict.RejectUnknownMembers(true)); err != nil {
		return err
	}
	switch text, sum := unsealed(data); {
	case sum == "":
		keepOld(path, data)
	case sum != sumOf(text):
		return ErrSum
	}
	return nil
}

// keepOld keeps such a file as it was. Where that cannot be written, the file itself cannot
// be either.
func keepOld(path string, data []byte) { _ = WriteFile(path+".old", data, 0o600) }

// sealed is a text with its checksum behind it, in a line of blanks and tabs: the versions
// before read past that.
func sealed(text []byte) []byte {
	text = append(text, '\n')
	return append(append(text, sumOf(text)...), '\n')
}

// unsealed takes a checksum off; it is empty where there is none.
func unsealed(data []byte) (text []byte, sum string) {
	text, _ = bytes.CutSuffix(data, []byte("\n"))
	n := bytes.LastIndexByte(text, '\n') + 1
	// One that is cut is no sum of anything.
	if line := text[n:]; len(line) > 0 && len(bytes.Trim(line, " \t")) == 0 {
		return text[:n], string(line)
	}
	return data, ""
}

const sumBits = 32

// sumOf is the CRC-32C of a text, a tab for each 1 of it.
func sumOf(text []byte) string {
	sum, line := crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)), make([]byte, sumBits)
	for n := range line {
		line[n] = " \t"[sum>>n&1]
	}
	return string(line)
}
