/** Starts the console. */
import { render } from 'preact'
import { App } from './shell/app.tsx'
import './style/console.css'

const root = document.getElementById('app')
if (root !== null) render(<App />, root)
