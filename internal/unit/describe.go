package unit

import (
	"context"
	"encoding/json"
)

// maxRoomMetadata limits the encoded metadata of a room that follow the conference to its next unit.
const maxRoomMetadata = 64 << 10

// roomMetadata is the field of the live information that has them.
const roomMetadata = "roomMetadata"

// describer is a driver whose rooms have metadata that applications write.
type describer interface {
	Describe(ctx context.Context, e164, metadata string) error
}

// describe adds the room's metadata to the live information, once they are the conference's. It reports whether they are too large
// to follow it.
func (c *reported) describe(live Live) (tooLarge bool) {
	b, err := json.Marshal(c.Metadata)
	if tooLarge = err != nil || len(b) > maxRoomMetadata; tooLarge {
		b = json.RawMessage(`""`)
	}
	live[roomMetadata] = b
	return tooLarge
}
