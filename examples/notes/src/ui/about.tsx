import { useLayoutEffect, useState } from 'preact/hooks'
import { LONGEST_NAME } from '../device.ts'
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
      <DeviceName />
      <section class="card">
        <h2>An example of settee</h2>
        <p>
          PouchDB keeps your notes in this browser, so they work without a network. Under Synchronization you
          choose where to sync them. Changing that, or signing out, does not remove any notes.
        </p>
        <p>
          This browser's storage for this page also holds the Address with its password and the token of the
          hosted server. Anyone who can read the notes there can read these, too.
        </p>
      </section>
    </>
  )
}

function DeviceName() {
  const { device } = useServices()
  const { name } = useWatched(device)
  const [typed, type] = useState(name)
  useLayoutEffect(() => type(name), [name])
  return (
    <form
      class="card form"
      onSubmit={(event) => {
        event.preventDefault()
        device.rename(typed)
      }}
    >
      <h2>This device</h2>
      <label class="field">
        <span>Name</span>
        <input maxLength={LONGEST_NAME} value={typed} onInput={(event) => type(event.currentTarget.value)} />
      </label>
      <p class="hint">Shown with your version when two devices change a note at the same time.</p>
      <button type="submit" class="quiet" disabled={typed.trim() === '' || typed.trim() === name}>
        Save the name
      </button>
    </form>
  )
}
