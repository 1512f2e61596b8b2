/** `_changes`, row by row: protocol.md 5 and 19.5. */
import t from 'tap'
import { rows as filterErrors } from './changes-filter-errors.rows.ts'
import { rows as filters } from './changes-filters.rows.ts'
import { rows as parameters } from './changes-parameters.rows.ts'
import { rows as framing } from './changes-rows.rows.ts'
import { rows as vectors } from './changes-vectors.rows.ts'
import { rows as waiting } from './changes-waiting.rows.ts'
import { runTable } from './table.ts'

t.test('its parameters', async (t) => runTable(t, parameters))
t.test('its rows and their framing', async (t) => runTable(t, framing))
t.test('how it waits', async (t) => runTable(t, waiting))
t.test('its filters', async (t) => runTable(t, filters))
t.test('what it refuses', async (t) => runTable(t, filterErrors))
t.test('the vectors', async (t) => runTable(t, vectors))
