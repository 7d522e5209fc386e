package similar

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTo(t *testing.T) {
	known := []string{"name", "servers", "min_ready", "id", "url", "token_file"}
	for typed, want := range map[string]string{
		"nmae": "name", "server": "servers", "min-ready": "min_ready", "token_fil": "token_file",
		"ulr": "url", "identity": "", "ab": "", "": "", strings.Repeat("n", 1<<16): "",
	} {
		assert.Equal(t, want, To(typed, known), "typed %.20q", typed)
	}
	assert.Equal(t, " (did you mean heavy/h1?)", Hint("heavy/h3", []string{"light", "heavy/h1"}))
	assert.Empty(t, Hint("heavy/h3", nil))
}
