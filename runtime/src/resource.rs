//! Resources: state that outlives a step, held by containers of a device.

use crate::Device;
use graphmill_tensor::{
    DType, ResourceHandle, Result, Shape, Status, already_exists, internal, invalid_argument, not_found,
};
use parking_lot::RwLock;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

/// State that outlives a step.
pub trait Resource: Any + Send + Sync {
    /// The name of the type as TensorFlow's texts have it (the mangled C++ name), such as `N10tensorflow3VarE`.
    const TYPE_NAME: &'static str;
}

type Entry = Arc<dyn Any + Send + Sync>;

/// The resources of one type in a container, by name.
struct Kind {
    id: TypeId,
    type_name: &'static str,
    entries: HashMap<String, Entry>,
}

/// A container. It holds resources of few types, so that a search among those is quicker than a hash.
#[derive(Default)]
struct Container(Vec<Kind>);

impl Container {
    fn get<R: Resource>(&self, name: &str) -> Option<&Entry> {
        let id = TypeId::of::<R>();
        self.0.iter().find(|kind| kind.id == id)?.entries.get(name)
    }

    fn kind_mut<R: Resource>(&mut self) -> &mut HashMap<String, Entry> {
        let id = TypeId::of::<R>();
        let at = match self.0.iter().position(|kind| kind.id == id) {
            Some(at) => at,
            None => {
                self.0.push(Kind { id, type_name: R::TYPE_NAME, entries: HashMap::new() });
                self.0.len() - 1
            }
        };
        &mut self.0[at].entries
    }

    fn len(&self) -> usize {
        self.0.iter().map(|kind| kind.entries.len()).sum()
    }
}

/// The containers of a device, or of a step.
#[derive(Default)]
pub struct ResourceManager {
    containers: RwLock<HashMap<String, Container>>,
}

impl ResourceManager {
    /// An empty manager.
    pub fn new() -> ResourceManager {
        ResourceManager::default()
    }

    /// The resource of this type and name. Allocates nothing where there is one.
    ///
    /// # Errors
    /// `NOT_FOUND` in TensorFlow's words, which differ between a missing container and a missing resource.
    pub fn lookup<R: Resource>(&self, container: &str, name: &str) -> Result<Arc<R>> {
        let containers = self.containers.read();
        let Some(resources) = containers.get(container) else {
            return Err(not_found!(
                "Container {container} does not exist. (Could not find resource: {container}/{name})"
            ));
        };
        match resources.get::<R>(name) {
            Some(entry) => downcast(entry.clone()),
            None => Err(missing(container, name, R::TYPE_NAME)),
        }
    }

    /// The resource of this type and name; made by `create` if there is none. Two callers never make two.
    ///
    /// # Errors
    /// What `create` returns.
    pub fn lookup_or_create<R: Resource>(
        &self,
        container: &str,
        name: &str,
        create: impl FnOnce() -> Result<R>,
    ) -> Result<Arc<R>> {
        if let Some(entry) = self.containers.read().get(container).and_then(|c| c.get::<R>(name)) {
            return downcast(entry.clone());
        }
        let mut containers = self.containers.write();
        let resources = containers.entry(container.to_owned()).or_default().kind_mut::<R>();
        if let Some(entry) = resources.get(name) {
            return downcast(entry.clone());
        }
        let created = Arc::new(create()?);
        resources.insert(name.to_owned(), created.clone());
        Ok(created)
    }

    /// Adds a resource.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if there is one of this type and name.
    pub fn create<R: Resource>(&self, container: &str, name: &str, resource: R) -> Result<Arc<R>> {
        let mut containers = self.containers.write();
        let resources = containers.entry(container.to_owned()).or_default().kind_mut::<R>();
        if resources.contains_key(name) {
            return Err(already_exists!("Resource {container}/{name}/{}", R::TYPE_NAME));
        }
        let resource = Arc::new(resource);
        resources.insert(name.to_owned(), resource.clone());
        Ok(resource)
    }

    /// Removes a resource. Steps that hold it keep it until they end.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is none of this type and name.
    pub fn delete<R: Resource>(&self, container: &str, name: &str) -> Result<()> {
        self.delete_of_type(container, name, R::TYPE_NAME)
    }

    /// Removes the resource that a handle names, whatever its type.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is none of this type and name.
    pub fn delete_of_type(&self, container: &str, name: &str, type_name: &str) -> Result<()> {
        let removed = {
            let mut containers = self.containers.write();
            let Some(resources) = containers.get_mut(container) else {
                return Err(not_found!("Container {container} does not exist."));
            };
            resources.0.iter_mut().filter(|kind| kind.type_name == type_name).find_map(|k| k.entries.remove(name))
        };
        // Dropped outside the lock, as in `cleanup`.
        match removed {
            Some(_) => Ok(()),
            None => Err(missing(container, name, type_name)),
        }
    }

    /// Removes a container with all it holds; one that does not exist is fine.
    pub fn cleanup(&self, container: &str) {
        // Dropped outside the lock: a destructor may look up other resources.
        let removed = self.containers.write().remove(container);
        drop(removed);
    }

    /// How many resources of each type each container holds: container, name of the type, number.
    pub fn census(&self) -> Vec<(String, &'static str, usize)> {
        let containers = self.containers.read();
        let kinds = containers.iter().flat_map(|(name, container)| container.0.iter().map(move |kind| (name, kind)));
        let counted = kinds.map(|(name, kind)| (name.clone(), kind.type_name, kind.entries.len()));
        let mut census: Vec<_> = counted.filter(|(_, _, number)| *number > 0).collect();
        census.sort_unstable();
        census
    }

    /// All resources of one type, with their containers and names.
    pub fn all<R: Resource>(&self) -> Vec<(String, String, Arc<R>)> {
        let containers = self.containers.read();
        let mut found = Vec::new();
        for (container, held) in containers.iter() {
            let kinds = held.0.iter().filter(|kind| kind.id == TypeId::of::<R>());
            for (name, entry) in kinds.flat_map(|kind| &kind.entries) {
                if let Ok(resource) = entry.clone().downcast() {
                    found.push((container.clone(), name.clone(), resource));
                }
            }
        }
        found.sort_unstable_by(|(a, x, _), (b, y, _)| (a, x).cmp(&(b, y)));
        found
    }

    /// Number of resources in all containers.
    pub fn len(&self) -> usize {
        self.containers.read().values().map(Container::len).sum()
    }

    /// Whether no container holds anything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn missing(container: &str, name: &str, type_name: &str) -> Status {
    not_found!("Resource {container}/{name}/{type_name} does not exist.")
}

fn downcast<R: Resource>(entry: Entry) -> Result<Arc<R>> {
    entry.downcast::<R>().map_err(|_| internal!("a resource is filed under the wrong type"))
}

/// What handles carry to tell resource types apart: FNV-1a of the type's name.
pub fn type_hash(type_name: &str) -> u64 {
    type_name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Resources as handles name them.
impl Device {
    /// The handle of a resource of this device.
    pub fn resource_handle<R: Resource>(
        &self,
        container: &str,
        name: &str,
        dtypes_and_shapes: Vec<(DType, Option<Shape>)>,
    ) -> ResourceHandle {
        ResourceHandle {
            device: self.name().to_owned(),
            container: container.to_owned(),
            name: name.to_owned(),
            hash_code: type_hash(R::TYPE_NAME),
            type_name: R::TYPE_NAME.to_owned(),
            dtypes_and_shapes,
        }
    }

    /// Checks that a handle belongs to this device.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming both devices if not.
    pub fn check_handle_device(&self, handle: &ResourceHandle) -> Result<()> {
        if handle.device == self.name() {
            return Ok(());
        }
        Err(invalid_argument!(
            "Trying to access resource {} located in device {} from device {}",
            handle.name,
            handle.device,
            self.name()
        ))
    }

    /// Checks that a handle belongs to this device and names a resource of type `R`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming both devices or both types if not.
    pub fn check_handle<R: Resource>(&self, handle: &ResourceHandle) -> Result<()> {
        self.check_handle_device(handle)?;
        if handle.type_name == R::TYPE_NAME {
            return Ok(());
        }
        Err(invalid_argument!(
            "Trying to access a handle's resource using the wrong type. The handle points to a resource (name '{}') of type \
             '{}' (hash code {}) but you are trying to access the resource as type '{}' (hash code {})",
            handle.name,
            handle.type_name,
            handle.hash_code,
            R::TYPE_NAME,
            type_hash(R::TYPE_NAME)
        ))
    }

    /// The resource that a handle names.
    ///
    /// # Errors
    /// As [`Device::check_handle`] and [`ResourceManager::lookup`].
    pub fn lookup_handle<R: Resource>(&self, handle: &ResourceHandle) -> Result<Arc<R>> {
        self.check_handle::<R>(handle)?;
        self.resources().lookup(&handle.container, &handle.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counter(u32);

    impl Resource for Counter {
        const TYPE_NAME: &'static str = "Counter";
    }

    #[test]
    fn texts_tell_a_missing_container_from_a_missing_resource() {
        let manager = ResourceManager::new();
        let error = manager.lookup::<Counter>("worker", "sv").err().unwrap();
        assert_eq!(error.message(), "Container worker does not exist. (Could not find resource: worker/sv)");
        manager.create("worker", "x", Counter(1)).unwrap();
        let error = manager.lookup::<Counter>("worker", "sv").err().unwrap();
        assert_eq!(error.message(), "Resource worker/sv/Counter does not exist.");
        assert!(manager.create("worker", "x", Counter(2)).is_err());
        assert_eq!(manager.lookup_or_create("worker", "x", || Ok(Counter(3))).unwrap().0, 1);
    }

    #[test]
    fn containers_are_cleared_alone() {
        let manager = ResourceManager::new();
        manager.create("a", "x", Counter(1)).unwrap();
        let held = manager.create("b", "x", Counter(2)).unwrap();
        manager.cleanup("b");
        manager.cleanup("c");
        assert_eq!(held.0, 2);
        assert_eq!(manager.len(), 1);
        assert!(manager.delete::<Counter>("b", "x").is_err());
        manager.delete::<Counter>("a", "x").unwrap();
        assert!(manager.is_empty());
    }

    #[test]
    fn handles_are_checked_before_they_are_followed() {
        let device = Device::cpu("/job:a/replica:0/task:0", "a", 0, 1, crate::IntraOpPool::new(1));
        device.resources().create("a", "x", Counter(4)).unwrap();
        let handle = device.resource_handle::<Counter>("a", "x", Vec::new());
        assert_eq!(device.lookup_handle::<Counter>(&handle).unwrap().0, 4);
        let elsewhere = ResourceHandle { device: "/job:b/replica:0/task:0/device:CPU:0".into(), ..handle.clone() };
        let error = device.lookup_handle::<Counter>(&elsewhere).err().unwrap();
        assert_eq!(
            error.message(),
            "Trying to access resource x located in device /job:b/replica:0/task:0/device:CPU:0 from device \
             /job:a/replica:0/task:0/device:CPU:0"
        );
        let other = ResourceHandle { type_name: "Queue".into(), ..handle.clone() };
        assert!(device.lookup_handle::<Counter>(&other).err().unwrap().message().contains("the wrong type"));
        device.resources().delete_of_type("a", "x", &handle.type_name).unwrap();
        let error = device.resources().delete_of_type("a", "x", &handle.type_name).err().unwrap();
        assert_eq!(error.message(), "Resource a/x/Counter does not exist.");
    }
}
