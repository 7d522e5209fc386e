package httpapi

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/invopop/jsonschema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The schema that users have is that of the code, with the comments of the fields.
func TestTheSchemaOfStatus(t *testing.T) {
	r := jsonschema.Reflector{
		Anonymous:                 true,
		AllowAdditionalProperties: true, // a later version may say more
	}
	root := filepath.Join("..", "..")
	// The names of packages are paths below the module: comments are found by them.
	for _, dir := range []string{"internal/httpapi", "internal/horizon", "internal/tier", "internal/admission"} {
		require.NoError(t, r.AddGoComments("tier-agent/"+dir, filepath.Join(root, dir), jsonschema.WithFullComment()))
	}
	schema := r.Reflect(&Status{})
	schema.Title = "GET /api/v1/status of tier-agent"
	text, err := json.MarshalIndent(schema, "", "  ")
	require.NoError(t, err)
	file := filepath.Join(root, "docs", "status.schema.json")
	if *update {
		require.NoError(t, os.WriteFile(file, append(text, '\n'), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(text)+"\n", "go test ./internal/httpapi -run TestTheSchemaOfStatus -update")
}
