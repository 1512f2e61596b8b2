import { useServices, useWatched } from './services.ts'

export function About() {
  const { library } = useServices()
  const { notes, books, tags, pictures } = useWatched(library)
  const rows = [
    ['Notes', notes.length],
    ['Books', books.length],
    ['Tags', tags.length],
    ['Pictures', pictures.size],
  ] as const
  return (
    <>
      <section class="card">
        <h2>On this device</h2>
        <dl class="facts">
          {rows.map(([name, count]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{count}</dd>
            </div>
          ))}
        </dl>
      </section>
      <section class="card">
        <h2>An example of settee</h2>
        <p>
          Notes are kept in this browser by PouchDB, and work without a network. What you choose under
          Synchronization decides where they travel to; changing it, or signing out, removes none of them.
        </p>
        <p>
          The applied Address, with its password, and the token of the hosted server are kept in this
          browser's storage for this page, as readable as the notes beside them.
        </p>
      </section>
    </>
  )
}
