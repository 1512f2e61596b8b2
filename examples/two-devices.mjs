// Two devices and one note: node examples/two-devices.mjs ADDRESS
// or:                      settee vault add notes --for pouchdb --json | node examples/two-devices.mjs
import { text } from 'node:stream/consumers'
import PouchDB from 'pouchdb'
import memory from 'pouchdb-adapter-memory'

PouchDB.plugin(memory)

const address = process.argv[2] ?? JSON.parse(await text(process.stdin)).address
// Real devices would be separate machines. These two keep their notes in memory, until the program ends.
const laptop = new PouchDB('laptop', { adapter: 'memory' })
const phone = new PouchDB('phone', { adapter: 'memory' })

// A live sync continues by itself, even after lost connections.
const live = { live: true, retry: true }
const syncs = [laptop.sync(address, live), phone.sync(address, live)]

/** Resolves with the note as soon as the device has this revision. */
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
