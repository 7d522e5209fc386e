package durable

import (
	"fmt"
	"io"
	"os"

	strict "github.com/go-json-experiment/json"
)

// ReadJSON clears what is left beside the file at path, and decodes the file at path into what into points to. It is an error for the
// file to have more than most bytes, keys that are not known, or anything but one
// JSON value; so is a key that stands twice, or in another case. A file that is not there is fs.ErrNotExist, and nothing else is.
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
	return strict.Unmarshal(data, into, strict.RejectUnknownMembers(true))
}
