import { useEffect, useMemo, useState } from 'preact/hooks'
import { compareLines, keep, keepAll, type Line, versionsOf, writersOf } from '../notes/conflicts.ts'
import type { Note, Notebook } from '../notes/model.ts'
import { Icon } from './icons.tsx'
import { go, hashOf } from './route.ts'
import { useServices, useWatched } from './services.ts'
import { exactly } from './times.ts'

/** Shows the versions of a note side by side. The user keeps one or all of them. */
export function ConflictView({ noteId }: { readonly noteId: string }) {
  const { library, device } = useServices()
  const notebook = useWatched(library)
  const { notes, isLoaded } = notebook
  const known = notes.find(({ id }) => id === noteId)
  const [versions, setVersions] = useState<readonly Note[]>([])
  const writers = writersOf(versions, useWatched(device))
  const [isBusy, setBusy] = useState(false)
  const [fault, setFault] = useState('')
  const state = known === undefined ? null : [known.rev, ...known.conflicts].join(' ')
  const back = () => go({ screen: 'notes', shelf: { kind: 'all' }, note: noteId })
  // Read again when the revisions change.
  useEffect(() => {
    let isGone = false
    if (state !== null) {
      const show = (found: readonly Note[]) => isGone || setVersions(found)
      // If the note is deleted meanwhile, the notebook changes as well.
      void versionsOf(library.db, noteId).then(show, () => show([]))
    }
    return () => {
      isGone = true
    }
  }, [library, noteId, state])
  const resolve = async (act: () => Promise<void>) => {
    setBusy(true)
    try {
      await act()
      back()
    } catch (error) {
      setFault((error as Error).message)
      setBusy(false)
    }
  }
  const isResolved = isLoaded && (known === undefined || known.conflicts.length === 0)
  return (
    <main class="pane conflict">
      <header class="bar">
        <a
          class="bare"
          href={hashOf({ screen: 'notes', shelf: { kind: 'all' }, note: noteId })}
          aria-label="Back to the note"
        >
          <Icon name="back" />
        </a>
        <h1>Versions</h1>
        <span class="spring" />
        {versions.length > 1 && (
          <button
            type="button"
            class="quiet"
            title="Keep each version as a separate note"
            disabled={isBusy}
            onClick={() => void resolve(() => keepAll(library.db, versions))}
          >
            {versions.length === 2 ? 'Keep both' : 'Keep all'}
          </button>
        )}
      </header>
      {fault !== '' && (
        <p class="notice is-bad" role="alert">
          That did not work. Every version is still there: {fault}
        </p>
      )}
      {isResolved ? (
        <p class="empty">This note has only one version. There is nothing to resolve.</p>
      ) : (
        <div class="versions">
          {versions.map((version, at) => (
            <Version
              key={version.rev}
              version={version}
              writer={writers[at] ?? null}
              name={String.fromCharCode(65 + (at % 26))}
              other={versions[at === 0 ? 1 : 0] ?? version}
              placeOf={(note) => placeOf(note, notebook)}
              isBusy={isBusy}
              onKeep={() => void resolve(() => keep(library.db, versions, version))}
            />
          ))}
        </div>
      )}
    </main>
  )
}

interface VersionProps {
  readonly version: Note
  readonly other: Note
  readonly name: string
  /** The device that wrote it; null: not known. */
  readonly writer: string | null
  readonly placeOf: (note: Note) => string
  readonly isBusy: boolean
  readonly onKeep: () => void
}

function Version({ version, other, name, writer, placeOf, isBusy, onKeep }: VersionProps) {
  const [lines] = useMemo(() => compareLines(version.body, other.body), [version.body, other.body])
  const place = placeOf(version)
  return (
    <section class="version" aria-label={`Version ${name}`}>
      <header>
        <span class="letter">{name}</span>
        <span>
          {writer === null ? 'Edited' : <strong>{`Edited on ${writer}`}</strong>}{' '}
          <time dateTime={new Date(version.updatedAt).toISOString()}>{exactly(version.updatedAt)}</time>
        </span>
      </header>
      <h2 class={version.title === other.title ? '' : 'is-own'}>{version.title || 'Untitled'}</h2>
      <p class={`place${place === placeOf(other) ? '' : ' is-own'}`}>{place}</p>
      <div class="lines">
        {lines.map((line, at) => (
          <TextLine key={`${at} ${line.text}`} line={line} />
        ))}
      </div>
      <button type="button" disabled={isBusy} onClick={onKeep}>
        Keep version {name}
      </button>
    </section>
  )
}

/** The book and the tags of a note, by name. */
function placeOf({ bookId, tags, trashedAt }: Note, notebook: Notebook): string {
  const book = notebook.books.find(({ id }) => id === bookId)?.name ?? 'No book'
  const names = tags.map((id) => notebook.tags.find((tag) => tag.id === id)?.name ?? id.slice('tag:'.length))
  return [...(trashedAt > 0 ? ['In the trash'] : []), book, ...names].join(' · ')
}

function TextLine({ line }: { readonly line: Line }) {
  return line.isCommon ? <p>{line.text}</p> : <p class="is-own">{line.text}</p>
}
