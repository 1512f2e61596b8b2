/** `_changes`, row by row: protocol.md 5 and 19.5. */
import t from 'tap'
import { rows as filterErrors } from './changes-filter-errors.rows.ts'
import { rows as filters } from './changes-filters.rows.ts'
import { rows as parameters } from './changes-parameters.rows.ts'
import { rows as framing } from './changes-rows.rows.ts'
import { rows as vectors } from './changes-vectors.rows.ts'
import { rows as waiting } from './changes-waiting.rows.ts'
import { runTable } from './table.ts'

t.test('a feed accepts its parameters', async (t) => runTable(t, parameters))
t.test('a feed frames its rows', async (t) => runTable(t, framing))
t.test('a feed waits for changes', async (t) => runTable(t, waiting))
t.test('a feed applies its filters', async (t) => runTable(t, filters))
t.test('a feed refuses faulty filters', async (t) => runTable(t, filterErrors))
t.test('feeds match the vectors of the protocol', async (t) => runTable(t, vectors))
