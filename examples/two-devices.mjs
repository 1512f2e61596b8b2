// Two devices and one note: node examples/two-devices.mjs ADDRESS
// or:                      settee vault add notes --for pouchdb --json | node examples/two-devices.mjs
import { text } from 'node:stream/consumers'
import PouchDB from 'pouchdb'
import memory from 'pouchdb-adapter-memory'

PouchDB.plugin(memory)

const address = process.argv[2] ?? JSON.parse(await text(process.stdin)).address
// Each would be on a machine of its own; what they have is in memory, and gone when this ends.
const laptop = new PouchDB('laptop', { adapter: 'memory' })
const phone = new PouchDB('phone', { adapter: 'memory' })

// A live sync goes on by itself, over lost connections too.
const live = { live: true, retry: true }
const syncs = [laptop.sync(address, live), phone.sync(address, live)]

/** Resolves with the note as soon as the device has it in this version. */
async function arrived(device, rev) {
  return new Promise((resolve) => {
    const feed = device.changes({ live: true, since: 0, include_docs: true }).on('change', ({ doc }) => {
      if (doc._rev !== rev) return
      feed.cancel()
      resolve(doc)
    })
  })
}

const id = `note:${Date.now()}`
const { rev } = await laptop.put({ _id: id, title: 'Hello', body: 'written on the laptop' })
console.log('on the phone: ', (await arrived(phone, rev)).body)
const edited = await phone.put({ ...(await phone.get(id)), body: 'edited on the phone' })
console.log('on the laptop:', (await arrived(laptop, edited.rev)).body)

for (const sync of syncs) sync.cancel()
process.exit()
