import { Dialog } from './dialog.tsx'
import { useServices, useWatched } from './services.ts'
import { SHORTCUTS } from './shortcuts.ts'

const CTRL = /Mac|iPhone|iPad/.test(navigator.userAgent) ? '⌘' : 'Ctrl'

const IN_THE_TEXT = [
  { keys: [CTRL, 'Enter'], about: 'Write or read' },
  { keys: ['Enter'], about: 'Continue a list, or end it at an empty item' },
  { keys: ['Tab'], about: 'Move a list item in; with Shift, out' },
  { keys: ['Esc', 'Tab'], about: 'Leave the text: press one after the other' },
  { keys: [CTRL, 'F'], about: 'Find and replace' },
  { keys: [CTRL, 'Z'], about: 'Undo' },
] as const

const IN_LISTS = [
  { keys: ['↑', '↓'], about: 'Go through the notes; Home and End: the first and the last' },
  { keys: ['Enter'], about: 'Open the note; in a title: go to the text' },
  { keys: ['Esc'], about: 'Close a menu or a question' },
] as const

/** What the keyboard can do. */
export function HelpDialog({ onClose }: { readonly onClose: () => void }) {
  const { settings } = useServices()
  const { hasShortcuts } = useWatched(settings)
  return (
    <Dialog title="Keyboard" onClose={onClose}>
      <div class="help">
        <KeyList
          title="Anywhere but in a field"
          rows={SHORTCUTS.map(({ key, about }) => ({ keys: [key], about }))}
        />
        <KeyList title="In the list" rows={IN_LISTS} />
        <KeyList title="In the text" rows={IN_THE_TEXT} />
      </div>
      <label class="option">
        <input
          type="checkbox"
          checked={hasShortcuts}
          onChange={(event) => settings.setShortcuts(event.currentTarget.checked)}
        />
        Use single keys as shortcuts
      </label>
      <div class="buttons">
        <button type="button" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  )
}

interface KeyListProps {
  readonly title: string
  readonly rows: readonly { readonly keys: readonly string[]; readonly about: string }[]
}

function KeyList({ title, rows }: KeyListProps) {
  return (
    <section>
      <h3>{title}</h3>
      <dl>
        {rows.map(({ keys, about }) => (
          <div key={about}>
            <dt>
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{about}</dd>
          </div>
        ))}
      </dl>
    </section>
  )
}
