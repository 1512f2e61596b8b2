/** The name with which a device signs. */
import t from 'tap'
import { browserName, LONGEST_NAME, ThisDevice } from '../../../examples/notes/src/device.ts'

t.test('a device keeps its id, and the name that the user chose', async (t) => {
  const kept = new Map<string, string>()
  const shelf = {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => kept.set(key, value),
    removeItem: (key: string) => kept.delete(key),
  }
  const device = new ThisDevice(shelf, browserName('Mozilla/5.0 (Android) Firefox/140'))
  t.equal(device.value.name, 'Firefox on Android')
  device.rename('  ')
  device.rename(` ${'x'.repeat(LONGEST_NAME + 5)}`)
  const again = new ThisDevice(shelf, 'another')
  t.same(again.value, device.value)
  t.equal(again.value.name.length, LONGEST_NAME)
  t.not(new ThisDevice({ ...shelf, getItem: () => '{"id":1}' }, 'x').value.id, device.value.id)
})
