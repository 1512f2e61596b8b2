import t from 'tap'
import { isReachable } from '../../console/src/api/reachable.ts'

t.test('a path that a browser resolves to another one does not lead to what it names', async (t) => {
  for (const path of [
    'notes/..',
    'notes/.',
    'notes/_design/..',
    'notes/id/../../_node/_local/_config/admins/anna',
    'notes/%2E%2e/x',
    'notes/.%2e',
  ]) {
    t.equal(isReachable(path), false, path)
    t.not(new URL(path, 'http://server/').pathname, `/${path}`)
  }
})

t.test('other names with dots lead to what they name', async (t) => {
  for (const name of ['...', '..a', 'a..', '../..', '..\\..', '%2e%2e', '/..', ' ..']) {
    const path = `notes/${encodeURIComponent(name)}`
    t.equal(isReachable(path), true, name)
    t.equal(new URL(path, 'http://server/').pathname, `/${path}`)
  }
})
