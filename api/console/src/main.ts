import { mount } from 'svelte';
import './style.css';
import './parts/form.css';
import './views/task.css';
import './console/console.css';
import App from './App.svelte';
import { session } from './lib/session.svelte';

void session.begin();
mount(App, { target: document.getElementById('app')! });
