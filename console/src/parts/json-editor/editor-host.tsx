/** The place in the page where an editor of CodeMirror stands. */
import type { RefObject } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { Skeleton } from '../notice.tsx'
import './code-editor.css'

interface EditorHost<View> {
  readonly host: RefObject<HTMLDivElement | null>
  /** null until the state is `ready`. */
  readonly view: RefObject<View | null>
  /** `plain`: the editor's code could not be loaded. */
  readonly state: 'loading' | 'ready' | 'plain'
}

/**
 * Loads an editor's code when it first appears, and makes the editor in a shadow root, where the policy allows its styles.
 * @param load loads the code, and returns what makes the editor
 * @param inputs a change of these makes the editor anew
 */
export function useEditorHost<View extends { destroy(): void }>(
  load: () => Promise<(root: ShadowRoot, frame: HTMLElement) => View>,
  inputs: readonly unknown[],
): EditorHost<View> {
  const host = useRef<HTMLDivElement>(null)
  const view = useRef<View | null>(null)
  const [state, setState] = useState<EditorHost<View>['state']>('loading')
  useEffect(() => {
    let isGone = false
    load().then(
      (create) => {
        if (isGone || host.current === null) return
        const root = host.current.shadowRoot ?? host.current.attachShadow({ mode: 'open' })
        const frame = document.createElement('div')
        frame.style.blockSize = '100%'
        root.replaceChildren(frame)
        view.current = create(root, frame)
        setState('ready')
      },
      () => {
        if (!isGone) setState('plain')
      },
    )
    return () => {
      isGone = true
      view.current?.destroy()
      view.current = null
    }
  }, inputs)
  return { host, view, state }
}

interface EditorPlaceProps {
  readonly host: RefObject<HTMLDivElement | null>
  readonly isLoading: boolean
  readonly fills: boolean
}

export function EditorPlace({ host, isLoading, fills }: EditorPlaceProps) {
  return (
    <div class={`code-editor ${fills ? 'fills' : ''}`}>
      {isLoading && (
        <div class="code-waits">
          <Skeleton lines={5} />
        </div>
      )}
      <div class="code-host" ref={host} />
    </div>
  )
}
